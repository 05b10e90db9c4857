"""Makes the project's .venv, fills it with the pinned packages, and knows when there is nothing left to do.

It does not parse the command line, start the app, or look at the operating system's own packages.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import setup_failures
import setup_progress
from setup_failures import SetupError

STAMP_FORMAT = 1
GB = 1_000_000_000
# With the CPU build: 1.9 GB of files with the tests' tools (measured, Linux), 0.4 GB of wheels until they are unpacked.
# With a CUDA build: 5.5 GB of files and 2.7 GB of wheels (measured, Linux, CUDA 13).
NEED_BYTES = int(2.3 * GB)
NEED_CUDA_BYTES = int(8.2 * GB)
# NVIDIA's packages, or a build of torch for Linux that is not for the CPU.
_CUDA_PACKAGE = re.compile(
    r"^\s*(?:Collecting (?:nvidia-c|cuda-toolkit|triton)"
    r"|(?:Downloading|Using cached) (?:\S*/)?torch-[\d.]+(?:(?:\+|%2B)cu\d+)?-\S*linux\S*\.whl (?!\S*metadata))"
)
_NEEDS_CUDA_PACKAGES = re.compile(r"^Requires-Dist: (?:nvidia-|cuda-|triton\b)", re.M)


class Venv:
    """The .venv of the project at `root`, and the record of what was put into it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / ".venv"
        windows = os.name == "nt"
        self.python = self.path / ("Scripts/python.exe" if windows else "bin/python")
        self.stamp = self.path / "hearth-setup.json"
        self.unfinished = self.path / "hearth-setup.unfinished"
        self.log = self.path / "hearth-setup.log"
        self.downloads = self.path / "hearth-setup.tmp"
        self.locked = root / "installer" / "locked"  # the packages with their hashes: lock_packages.py

    def version(self) -> tuple[int, int] | None:
        """The Python that made it, (3, 11) for example; None where there is none, or its Python is gone."""
        try:
            config = (self.path / "pyvenv.cfg").read_text(encoding="utf-8")
        except OSError:
            return None
        found = re.search(r"^version(?:_info)?\s*=\s*(\d+)\.(\d+)", config, re.M)
        if found is None or not self.python.exists():
            return None
        return int(found.group(1)), int(found.group(2))

    def site_packages(self) -> Path:
        if os.name == "nt":
            return self.path / "Lib" / "site-packages"
        major, minor = self.version() or sys.version_info[:2]
        return self.path / "lib" / f"python{major}.{minor}" / "site-packages"

    def read_stamp(self) -> dict[str, Any]:
        """Return the record of the last finished setup; empty if none finished."""
        try:
            stamp = json.loads(self.stamp.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return stamp if isinstance(stamp, dict) else {}

    def write_stamp(self, stamp: dict[str, Any]) -> None:
        """Record a finished set-up; whole or not at all."""
        part = self.stamp.with_suffix(".part")
        part.write_text(json.dumps(stamp, indent=1) + "\n", encoding="utf-8")
        part.replace(self.stamp)

    def fingerprint(self) -> str:
        """A hash of everything that decides what belongs into the .venv, apart from the extra and the torch index."""
        digest = hashlib.sha256(f"{STAMP_FORMAT} {self.version()} {self.root}".encode())
        for file in (self.root / "pyproject.toml", self.root / "constraints.txt", *sorted(self.locked.glob("*.txt"))):
            digest.update(b"\0" + file.read_bytes())
        return digest.hexdigest()

    def is_ready(self, dev: bool, torch_index: str | None, python: tuple[int, int] | None) -> bool:
        """Whether nothing is to be done.

        A .venv that also holds the tests' tools serves without them; no torch index given means: the one chosen before.
        `python` is the version that it has to have, None for any.
        """
        stamp = self.read_stamp()
        return (
            bool(stamp)
            and not self.unfinished.exists()
            and self.version() is not None
            and (python is None or self.version() == python)
            and (bool(stamp.get("dev")) or not dev)
            and (torch_index is None or stamp.get("torch_index") == torch_index)
            and stamp.get("fingerprint") == self.fingerprint()
        )

    def is_healthy(self, python: tuple[int, int]) -> bool:
        """Whether it can be filled as it is: made by this Python, in this place, not cut short, its pip at work."""
        stamped_root = self.read_stamp().get("root", str(self.root))
        if self.version() != python or self.unfinished.exists() or stamped_root != str(self.root):
            return False
        try:
            done = subprocess.run(
                [str(self.python), "-I", "-m", "pip", "--version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=60,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0


def create(venv: Venv, base_python: str, progress: setup_progress.Progress) -> None:
    """Make an empty .venv with pip in it, in place of whatever is there.

    Raises: SetupError when the folder cannot be written or `python -m venv` fails.
    """
    try:
        if venv.path.is_symlink() or venv.path.is_file():
            venv.path.unlink()
        elif venv.path.exists():
            with progress.stage("Removing the old .venv"):
                shutil.rmtree(venv.path)
        with progress.stage("Making .venv"):
            done = subprocess.run(
                [base_python, "-I", "-m", "venv", str(venv.path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
    except OSError as error:
        raise SetupError(
            f"the folder {venv.path} cannot be written ({error.strerror or error}).",
            "make the project's folder your own, or move the project to a folder of yours.",
        ) from error
    if done.returncode != 0:
        said = done.stdout.decode("utf-8", "replace").strip()
        if "No space left" in said:
            raise setup_failures.no_space_failure(f"{venv.path} could not be made")
        raise SetupError(
            f"`{base_python} -m venv` failed: {said.splitlines()[-1] if said else f'code {done.returncode}'}",
            "check that this Python is whole (Debian, Ubuntu: sudo apt install python3-venv), then run it again.",
        )


def install(
    venv: Venv,
    dev: bool,
    torch_index: str | None,
    any_torch: bool,
    progress: setup_progress.Progress,
    free_bytes: Callable[[], int],
) -> None:
    """Install torch, then Hearth and everything it needs, into the .venv, at the pinned versions.

    pip checks every file against the hashes in installer/locked. With `any_torch` it does not check torch and NVIDIA's
    packages: their builds differ from one index to the next, and the user named an index to trust.

    Raises: SetupError with the reason taken from pip's output.
    """
    torch = torch_requirement(venv.root / "constraints.txt")
    before = venv.read_stamp()
    if torch_index is None:
        torch_index = before.get("torch_index")
        any_torch = any_torch or bool(before.get("any_torch"))
    dev = dev or bool(before.get("dev"))
    if not has_torch(venv, torch) and free_bytes() < NEED_BYTES:
        raise setup_failures.no_space_failure(_space_words(NEED_BYTES, free_bytes()))
    # A wheel or nothing: building one of these from source takes compilers, and fails after half an hour without.
    common = ["install", "--no-input", "--no-user", "--progress-bar", "off", "--only-binary", ":all:"]
    torch_place: list[str] = ["--index-url", torch_index] if torch_index else []

    def run(*arguments: str) -> None:
        _run_pip(venv, [*common, *arguments], progress, free_bytes)

    def pip(words: str, *arguments: str) -> None:
        with progress.stage(words):
            run(*arguments)

    def locked(*names: str) -> list[str]:
        lists = [word for name in names for word in ("-r", str(venv.locked / f"{name}.txt"))]
        return ["--require-hashes", "--no-deps", *lists]  # the lists are complete

    venv.unfinished.touch()
    try:
        another = torch_index is not None and before.get("torch_index") != torch_index
        if another or not has_torch(venv, torch):
            again = [*torch_place, *(["--force-reinstall"] if another else [])]
            words = f"Installing {torch} from {torch_index}" if torch_index else f"Installing {torch}, the largest part"
            with progress.stage(words):
                if any_torch:
                    run("--no-deps", *again, torch)
                else:
                    try:  # pip prefers a file whose hash the index tells: it would pass a local CPU build over
                        run(*again, *locked("torch_cpu"))
                    except _NothingUnpackedError as stopped:
                        if not isinstance(stopped.failure, setup_failures.NoSuchVersionError):
                            raise
                        run(*again, *locked("torch"))
        pip("Installing the other packages", *locked("app", *(["tests"] if dev else [])))
        if needs_cuda_packages(venv):
            words = "Installing NVIDIA's packages for PyTorch"
            pins = ["-c", str(venv.root / "constraints.txt")]
            pip(words, *([*torch_place, *pins, torch] if any_torch else locked("cuda")))
        pip("Installing Hearth", "--no-deps", "--no-build-isolation", "-e", str(venv.root))
    except _NothingUnpackedError as stopped:
        venv.unfinished.unlink()
        if torch_index:
            stopped.failure.act += f" Hearth searched {torch_index} for PyTorch; --torch-index chooses another index."
        raise stopped.failure from None
    venv.write_stamp(
        {
            "fingerprint": venv.fingerprint(),
            "root": str(venv.root),
            "dev": dev,
            "torch_index": torch_index,
            "any_torch": any_torch,
        }
    )
    venv.unfinished.unlink()


def torch_requirement(constraints: Path) -> str:
    """The line of the constraints that pins torch."""
    found = re.search(r"^torch==\S+", constraints.read_text(encoding="utf-8"), re.M)
    if found is None:
        raise SetupError("constraints.txt does not pin torch.", "put it back: `git checkout constraints.txt`.")
    return found.group(0)


def has_torch(venv: Venv, requirement: str) -> bool:
    """Whether torch is installed at its pinned version, as whatever build."""
    number = requirement.partition("==")[2]
    found = [path.name for path in venv.site_packages().glob("torch-*.dist-info")]
    return any(re.fullmatch(rf"torch-{re.escape(number)}(\+[\w.]+)?\.dist-info", name) for name in found)


def needs_cuda_packages(venv: Venv) -> bool:
    """Whether the installed torch is a build with CUDA for Linux, whose libraries are packages of their own."""
    if not sys.platform.startswith("linux"):
        return False
    files = venv.site_packages().glob("torch-*.dist-info/METADATA")
    return any(_NEEDS_CUDA_PACKAGES.search(file.read_text(encoding="utf-8", errors="replace")) for file in files)


def free_bytes_at(path: Path) -> int:
    """Free space of the disk under the first folder of `path` that exists."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


@contextmanager
def only_one_at_a_time(root: Path, progress: setup_progress.Progress) -> Iterator[None]:
    """Two set-ups of the same folder wait for each other; where the system has no such lock, nothing happens."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    folder = os.open(root, os.O_RDONLY)  # the folder itself is locked: no file is left behind
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.stage("Waiting for another set-up of this folder"):
                fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


class _NothingUnpackedError(Exception):
    """pip failed before it changed any package, so the .venv is as good as it was."""

    def __init__(self, failure: SetupError) -> None:
        super().__init__(failure.what)
        self.failure = failure


def _run_pip(
    venv: Venv, arguments: Sequence[str], progress: setup_progress.Progress, free_bytes: Callable[[], int]
) -> None:
    # pip's temporary files belong on the same disk as .venv: /tmp is often a small one in memory.
    shutil.rmtree(venv.downloads, ignore_errors=True)
    venv.downloads.mkdir()
    place = str(venv.downloads)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "TMPDIR": place, "TEMP": place, "TMP": place}
    environment.update(PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_ROOT_USER_ACTION="ignore")
    command = [str(venv.python), "-I", "-m", "pip", *arguments]
    lines: list[str] = []
    watch_space = True
    with venv.log.open("a", encoding="utf-8") as log:
        log.write(f"$ {' '.join(command)}\n")
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=str(venv.root),
        )
        with process, closing(_lines_of(process, progress)) as arriving:
            for line in arriving:
                log.write(line + "\n")
                log.flush()
                lines.append(line)
                progress.raw(line)
                progress.detail(setup_progress.pip_line_in_words(line))
                # Only here does it show that the index offers a CUDA build, more than three times as large.
                if watch_space and _CUDA_PACKAGE.match(line):
                    watch_space = False
                    if free_bytes() < NEED_CUDA_BYTES:
                        words = f"the index offers torch with CUDA: {_space_words(NEED_CUDA_BYTES, free_bytes())}"
                        raise _NothingUnpackedError(setup_failures.no_space_failure(words, venv.log))
    shutil.rmtree(venv.downloads, ignore_errors=True)
    if process.returncode != 0:
        failure = setup_failures.explain_pip("\n".join(lines), process.returncode, venv.log)
        if any(line.startswith("Installing collected packages") for line in lines):
            raise failure
        raise _NothingUnpackedError(failure)


def _lines_of(process: subprocess.Popen[bytes], progress: setup_progress.Progress) -> Generator[str, None, None]:
    """Lines as they come; the live line keeps counting while none comes. Closing it ends pip."""
    arrived: queue.Queue[bytes | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            arrived.put(line)
        arrived.put(None)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        while True:
            try:
                line = arrived.get(timeout=0.2)
            except queue.Empty:
                progress.tick()
                continue
            if line is None:
                return
            yield line.decode("utf-8", "replace").rstrip()
    finally:
        if process.poll() is None:
            process.terminate()
        reader.join()  # before its pipe is closed


def _space_words(need: int, free: int) -> str:
    return f"about {need / GB:.1f} GB are needed, {free / GB:.1f} GB are free"
