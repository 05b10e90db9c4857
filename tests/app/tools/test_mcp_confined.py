"""MCP servers as processes: what they can reach, and that they end with Hearth."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp_cases import WINDOWS_VARIABLES, left_of
from support.systems import ON_WINDOWS, UNDER_WINE, needs_links

from app.settings import paths
from app.tools.mcp import confined
from app.tools.mcp.confined import COULD_NOT_START, Plan, can_confine, launch_command
from app.tools.mcp.plans import own_files, plan_of
from app.tools.mcp.server_list import ToolServer, ToolServerError

ROOT = Path(__file__).resolve().parents[3]
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="uses Linux's ways to end processes")
needs_landlock = pytest.mark.skipif(not can_confine(), reason="this kernel has no Landlock of version 3 or newer")


@pytest.fixture
def private(tmp_path: Path) -> Path:
    folder = tmp_path / "private"
    folder.mkdir()
    return folder


def python(code: str, *args: str, **values: Any) -> ToolServer:
    return ToolServer("Python", "stdio", command=sys.executable, args=("-c", code, *args), **values)


def ran(plan: Plan, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(launch_command(), input=plan.to_line() + given, capture_output=True, timeout=60, check=False)


# --- the process between


def test_the_server_gets_stdin_stdout_and_stderr_and_its_code_comes_back(private: Path) -> None:
    code = "import sys; print(sys.stdin.read().upper(), end=''); sys.stderr.write('bad'); sys.exit(5)"
    done = ran(plan_of(python(code), private), b"one\ntwo\n")
    assert (done.stdout.splitlines(), done.stderr, done.returncode) == ([b"ONE", b"TWO"], b"bad", 5)


@linux_only
def test_the_signal_that_ended_the_server_comes_back(private: Path) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert ran(plan_of(python(code), private)).returncode == 128 + signal.SIGKILL


def test_a_program_that_cannot_be_run_says_so(private: Path) -> None:
    text = private / "text"
    text.write_text("no program")
    text.chmod(0o755)
    done = ran(Plan((str(text),), {}, str(private), parent=os.getpid()))
    assert done.returncode == COULD_NOT_START
    assert str(text).encode() in done.stderr


@pytest.mark.parametrize("given", [b"", b"\n", b"3\n", b'{"command": 3}\n', b"[" * 1000])
def test_without_a_plan_nothing_is_started(given: bytes) -> None:
    done = subprocess.run(launch_command(), input=given, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (COULD_NOT_START, b"", b"")


def test_the_environment_is_empty_but_for_what_a_program_needs(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("LANG", "C.UTF-8")
    server = python("import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))", variables={"MINE": "1"})
    environment, folder = json.loads(ran(plan_of(server, private)).stdout)
    environment.pop("LC_CTYPE", None)  # Python's own
    needed = {
        "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(private), "TMPDIR": str(private / "tmp"),
        "MINE": "1",
    }  # fmt: skip
    if ON_WINDOWS:
        needed |= {name: os.environ.get(name, "") for name in WINDOWS_VARIABLES}
        needed |= dict.fromkeys(("USERPROFILE", "APPDATA", "LOCALAPPDATA"), str(private))
        needed |= dict.fromkeys(("TEMP", "TMP"), str(private / "tmp"))
    assert needed.items() <= environment.items()
    assert "SECRET_TOKEN" not in environment
    assert UNDER_WINE or environment == needed  # Wine adds variables of its own
    assert folder == str(private)


def test_secrets_are_in_no_command_line(private: Path) -> None:
    server = python("import sys, time; print('up', flush=True); sys.stdin.read()", variables={"KEY": "hush"})
    process = subprocess.Popen(launch_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(plan_of(server, private).to_line())
    process.stdin.flush()
    process.stdout.readline()
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    assert len(family) >= 2  # on Windows perhaps the host of a console, too
    assert not any("hush" in word for one in family for word in one.cmdline())
    process.communicate(timeout=60)


@pytest.mark.skipif(not ON_WINDOWS, reason="only there is a console a window")
def test_a_server_of_the_packaged_program_has_pipes_and_no_window(private: Path) -> None:
    look = "import ctypes; print(input(), ctypes.windll.kernel32.GetConsoleWindow())"
    windowed = [sys.executable.replace("python.exe", "pythonw.exe"), *launch_command()[1:]]
    given = plan_of(python(look), private).to_line() + b"asked\n"
    done = subprocess.run(windowed, input=given, capture_output=True, timeout=60, check=False)
    assert done.stdout.split() == [b"asked", b"0"]


def test_the_packaged_program_starts_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    sys.path.insert(0, str(ROOT / "installer"))
    try:
        import start
    finally:
        sys.path.remove(str(ROOT / "installer"))
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert launch_command() == [sys.executable, confined.FLAG]
    monkeypatch.setattr(sys, "argv", ["hearth", confined.FLAG])
    monkeypatch.setattr(confined, "main", lambda: 77)
    monkeypatch.setattr(start, "restore_library_path", lambda: None)
    assert start.main() == 77


# --- what a server can reach


REACH = """
import json, os, socket, subprocess, sys
from pathlib import Path
given, named, outside, parent = sys.argv[1], *map(Path, sys.argv[2:4]), int(sys.argv[4])
home = Path(os.environ["HOME"])
acts = {
    "write private": lambda: (home / "a").write_text("x"),
    "write temporary": lambda: Path(os.environ["TMPDIR"], "a").write_text("x"),
    "write named": lambda: (named / "a").write_text("x"),
    "make folder in named": lambda: (named / "sub" / "sub").mkdir(parents=True),
    "rename within named": lambda: (named / "a").rename(named / "sub" / "b"),
    "read named": lambda: (named / "kept").read_text(),
    "write null": lambda: Path("/dev/null").write_text("x"),
    "read system": lambda: Path("/etc/passwd").read_text(),
    "read itself": lambda: Path("/proc/self/status").read_text(),
    "pair": lambda: [one.close() for one in socket.socketpair()],
    "internet socket": lambda: socket.socket(socket.AF_INET).close(),
    "run": lambda: subprocess.run(["/bin/sh", "-c", "exit 0"], check=True),
    "write outside": lambda: (outside / "a").write_text("x"),
    "read outside": lambda: (outside / "kept").read_text(),
    "list outside": lambda: os.listdir(outside),
    "empty outside": lambda: os.truncate(outside / "kept", 0),
    "remove outside": lambda: (outside / "kept").unlink(),
    "rename outside": lambda: (outside / "kept").rename(outside / "other"),
    "move in": lambda: (outside / "kept").rename(named / "moved"),
    "hard link in": lambda: (named / "hard").hardlink_to(outside / "kept"),
    "through a link": lambda: ((named / "soft").symlink_to(outside / "kept"), (named / "soft").read_text()),
    "child writes outside": lambda: subprocess.run(["/bin/sh", "-c", f"echo x > {outside}/a"], check=True,
                                                   stderr=subprocess.DEVNULL),
    "list home": lambda: os.listdir(given),
    "unix socket": lambda: socket.socket(socket.AF_UNIX).close(),
    "datagram socket": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).close(),
    "environment of others": lambda: Path(f"/proc/{parent}/environ").read_bytes(),
    "memory of others": lambda: Path(f"/proc/{parent}/mem").open("rb").close(),
    "files of others": lambda: Path(f"/proc/{parent}/root/etc/passwd").read_text(),
    "signal": lambda: os.kill(parent, 0),
    "signal supervisor": lambda: os.kill(os.getppid(), 0),
}
done = {}
for name, act in acts.items():
    try:
        act()
        done[name] = True
    except (OSError, subprocess.CalledProcessError):
        done[name] = False
print(json.dumps(done))
"""


@needs_landlock
def test_what_a_server_can_reach(private: Path, tmp_path: Path) -> None:
    named, outside = tmp_path / "named", tmp_path / "outside"
    for folder in (named, outside):
        folder.mkdir()
        (folder / "kept").write_text("kept")
    Path.home().mkdir(exist_ok=True)
    # The folder outside stands in an argument's text, which is no path by itself.
    args = (str(Path.home()), str(named), f"{outside}/.", str(os.getpid()))
    plan = plan_of(python(REACH, *args, folders=(str(named),)), private)
    plan = Plan(**{**vars(plan), "reads": tuple(one for one in plan.reads if not one.startswith(str(outside)))})
    done = json.loads(ran(plan).stdout)
    allowed = {
        "write private", "write temporary", "write named", "make folder in named", "rename within named", "read named",
        "write null", "read system", "read itself", "pair", "internet socket", "run",
    }  # fmt: skip
    if os.geteuid() == 0:  # with CAP_PERFMON the kernel asks nobody
        allowed |= {"environment of others"}
    if confined._landlock_version() < 6:
        allowed |= {"signal", "signal supervisor"}
    assert {name for name, was_done in done.items() if was_done} == allowed
    assert (outside / "kept").read_text() == "kept"
    assert sorted(one.name for one in outside.iterdir()) == ["kept"]


@needs_landlock
def test_a_server_that_the_user_does_not_confine_reaches_all(private: Path, tmp_path: Path) -> None:
    code = "import sys; open(sys.argv[1], 'w').write('x')"
    file = tmp_path / "file"
    assert ran(plan_of(python(code, str(file)), private)).returncode == 1
    assert not file.exists()
    plan = plan_of(python(code, str(file), is_confined=False), private)
    assert not plan.is_confined
    assert ran(plan).returncode == 0
    assert file.read_text() == "x"


def test_a_system_without_landlock_says_so(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform == "linux":
        monkeypatch.setattr(confined, "_landlock_version", lambda: -1)
    assert not can_confine()
    assert not plan_of(python("1"), private).is_confined


def test_an_older_landlock_is_not_called_a_confinement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "_landlock_version", lambda: 2)
    assert not can_confine()


# --- what a command needs


def test_a_command_that_is_not_there(private: Path) -> None:
    with pytest.raises(ToolServerError, match="no-such-command"):
        plan_of(ToolServer("Files", "stdio", command="no-such-command"), private)


@pytest.fixture
def home() -> Path:
    folder = Path.home()
    folder.mkdir(exist_ok=True)
    return folder


def made(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def folders(*command: Path | str, path: str = "") -> set[Path]:
    return {one for one in own_files(tuple(map(str, command)), path) if one.is_dir()}


def test_a_program_in_a_prefix_of_its_own(home: Path) -> None:
    assert folders(made(home / "node22" / "bin" / "node")) == {home / "node22"}
    assert folders(made(home / "tools" / "server")) == {home / "tools"}


@pytest.mark.parametrize("place", ["", ".local/bin", "bin", "Documents", "Downloads", ".config", ".local/share"])
def test_a_program_among_others_gets_its_own_file_only(home: Path, place: str) -> None:
    assert folders(made(home / place / "server")) == set()
    (home / "package.json").write_text("{}")
    assert folders(made(home / place / "server")) == set()


@needs_links
def test_a_link_leads_to_the_installation(home: Path) -> None:
    program = made(home / ".local" / "share" / "uv" / "tools" / "files" / "bin" / "files")
    link = home / ".local" / "bin" / "files"
    link.parent.mkdir(parents=True)
    link.symlink_to("../share/uv/tools/files/bin/files")
    assert folders(link) == {program.parents[1]}
    link.unlink()
    link.symlink_to(link)
    assert list(own_files((str(link),), "")) != []  # and it ends


@pytest.mark.skipif(ON_WINDOWS, reason="Windows reads no interpreter from a script")
def test_the_interpreter_of_a_script(home: Path) -> None:
    python = made(home / "py" / "bin" / "python3")
    script = made(home / "one" / "server", f"#!{python}\n")
    assert folders(script) == {home / "one", home / "py"}
    script = made(home / "two" / "server", "#!/usr/bin/env -S python3 -P\n")
    assert folders(script, path=str(python.parent)) == {home / "two", home / "py"}


def test_a_virtual_environment_brings_its_python(home: Path) -> None:
    base = made(home / "py311" / "bin" / "python3")
    made(home / "project" / ".venv" / "pyvenv.cfg", f"home = {base.parent}\nversion = 3.11\n")
    program = made(home / "project" / ".venv" / "bin" / "server", "x")
    assert folders(program) == {home / "project" / ".venv", home / "py311"}


def test_files_of_hearth_are_not_read_even_if_an_argument_names_them() -> None:
    chats = made(paths().chats_file)
    assert list(own_files(("/bin/sh", str(chats), str(chats.parent), str(paths().config)), "")) == [
        *own_files(("/bin/sh",), "")
    ]


def test_paths_in_the_arguments(home: Path) -> None:
    made(home / "mcp" / "package.json")
    made(home / "data" / "file")
    node = made(home / "node22" / "bin" / "node")
    script = made(home / "mcp" / "dist" / "index.js")
    for name in ("Documents", ".config"):
        (home / name).mkdir()
    named = (home / "data", home / "Documents", home / ".config", home, home.parent, "/")
    assert folders(node, script, *named, "--flag", "relative") == {
        home / "node22", home / "mcp", home / "data", home / "Documents",
    }  # fmt: skip


# --- its end


FAMILY = """
import os, signal, subprocess, sys, time
if os.fork() == 0:  # a daemon: its parent ends at once, it leaves the session, and it ignores SIGTERM
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(600)
os.wait()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
os.write(1, b"[%d, %d, %d]\\n" % (os.getpid(), os.getppid(), child.pid))
time.sleep(600)
"""
HEARTH = """
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from app.tools.mcp.confined import Plan, launch_command
plan = Plan((sys.executable, "-S", "-c", sys.argv[2]), dict(os.environ), sys.argv[3], is_confined=False,
            parent=os.getpid())
server = subprocess.Popen(launch_command(), stdin=subprocess.PIPE, start_new_session=True)
server.stdin.write(plan.to_line())
server.stdin.flush()
server.wait()
"""


def numbers(lines: Iterator[bytes]) -> set[int]:
    """The ids of the four processes of FAMILY: daemon, server, supervisor, child."""
    found: set[int] = set()
    while len(found) < 4:
        given = json.loads(next(lines))
        found |= set(given) if isinstance(given, list) else {given}
    return found


def family_after_a_kill(folder: Path) -> set[int]:
    hearth = subprocess.Popen(
        [sys.executable, "-c", HEARTH, str(ROOT), FAMILY, str(folder)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert hearth.stdout is not None
    try:
        processes = numbers(iter(hearth.stdout))
    finally:
        hearth.kill()
        hearth.wait()
        hearth.stdout.close()
    return left_of(processes)


@linux_only
@pytest.mark.parametrize("n_kills", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_nothing_is_left_when_hearth_is_killed(private: Path, n_kills: int) -> None:
    assert [left for _ in range(n_kills) if (left := family_after_a_kill(private))] == []


def started(private: Path, code: str) -> tuple[subprocess.Popen[bytes], Iterator[bytes]]:
    process = subprocess.Popen(launch_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdin is not None
    assert process.stdout is not None
    plan = Plan((sys.executable, "-S", "-c", code), dict(os.environ), str(private), is_confined=False,
                parent=os.getpid())  # fmt: skip
    process.stdin.write(plan.to_line())
    process.stdin.flush()
    return process, iter(process.stdout)


@linux_only
@pytest.mark.parametrize("end", ["stdin", "SIGTERM", "server"])
def test_nothing_is_left_when_a_server_is_stopped(private: Path, end: str) -> None:
    process, lines = started(private, FAMILY)
    with process:
        processes = numbers(lines)
        assert process.stdin is not None
        if end == "stdin":
            process.stdin.close()
        elif end == "SIGTERM":
            process.terminate()
        else:
            (server,) = (one for one in psutil.Process(process.pid).children() if one.children())
            server.kill()
        assert left_of(processes) == set()


@linux_only
def test_the_server_ends_when_the_process_between_is_killed(private: Path) -> None:
    process, lines = started(private, FAMILY)
    with process:
        processes = numbers(lines)
        (server,) = (one for one in psutil.Process(process.pid).children() if one.children())
        process.kill()
        assert left_of({process.pid, server.pid}) == set()
        for one in processes:  # what the server started goes on, as the page says
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)


@linux_only
def test_a_server_has_time_to_end_by_itself_when_stdin_closes(private: Path) -> None:
    file = private / "file"
    code = f"import sys, time; print('up', flush=True); sys.stdin.read(); time.sleep(0.2); open({str(file)!r}, 'w')"
    process, lines = started(private, code)
    with process:
        next(lines)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0
    assert file.exists()
