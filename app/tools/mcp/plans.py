"""Decides how a server's program runs: its environment, and the files that it may read and change. Starts nothing.

A program may read the system's folders, its own installation, and the files and folders that its arguments name. It may
change its private folder and the folders that the user named. The rest of the user's files it can neither read nor
change.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from app.settings import paths
from app.tools.mcp.confined import Plan, can_confine
from app.tools.mcp.server_list import ToolServer, ToolServerError
from app.translation import tr

SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/nix", "/gnu", "/snap", "/sys",
    "/run/current-system", "/run/opengl-driver",
    "/home/linuxbrew/.linuxbrew", "/var/lib/ca-certificates",
    "/proc",  # without the environment, memory and files of other programs: Landlock forbids to trace them
    # where /etc/resolv.conf may lead
    "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/mnt/wsl/resolv.conf",
)  # fmt: skip
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_PASSED_ON = ("PATH", "LANG", "SYSTEMROOT", "PATHEXT", "COMSPEC",
              "SYSTEMDRIVE", "PROGRAMFILES", "PROCESSOR_ARCHITECTURE")  # fmt: skip  # all but two: on Windows only
# In a folder with one of these, everything belongs to one program.
_MARKS = ("package.json", "node_modules", "pyproject.toml", "pyvenv.cfg", "Cargo.toml", "go.mod", "deno.json")
# In the home folder: settings and data of all programs, and places for files of any kind.
_SETTINGS = (".local", ".local/share", ".local/state", ".config", ".cache", "AppData", "Library")
_MIXED = (".local/bin", ".local/lib", "bin", "Desktop", "Documents", "Downloads")
_MAX_LINKS = 20
_SCRIPT_BYTES = 256


def plan_of(server: ToolServer, private: Path, given: Mapping[str, str] | None = None) -> Plan:
    """Return how to run a stdio server. private: its own folder, which must exist. given: Hearth's environment.

    Raises ToolServerError if the command is not there.
    """
    given = os.environ if given is None else given
    path = server.variables.get("PATH", given.get("PATH", os.defpath))
    found = shutil.which(os.path.expanduser(server.command), path=path)
    if found is None:
        raise ToolServerError(
            tr(
                "The command {command} of {name} was not found. Install it, or enter its full path.",
                command=server.command,
                name=server.name,
            )
        )
    temporary = private / "tmp"
    temporary.mkdir(exist_ok=True)
    environment = {name: given[name] for name in _PASSED_ON if name in given}
    environment |= {"HOME": str(private), "TMPDIR": str(temporary)}
    if sys.platform == "win32":
        folders = ("USERPROFILE", "APPDATA", "LOCALAPPDATA")
        environment |= {**dict.fromkeys(folders, str(private)), "TEMP": str(temporary), "TMP": str(temporary)}
    command = (os.path.abspath(found), *server.args)
    reads = dict.fromkeys([*SYSTEM, *(str(one) for one in own_files(command, path))])
    return Plan(
        command=command,
        environment={**environment, **server.variables},
        folder=str(private),
        reads=tuple(reads),
        writes=(str(private), *server.folders, *DEVICES),
        is_confined=server.is_confined and can_confine(),
        parent=os.getpid(),
    )


def own_files(command: tuple[str, ...], path: str) -> Iterator[Path]:
    """Yield the files and folders that a command needs: its installation, and what its arguments name."""
    for program in _programs(Path(command[0]), path):
        yield from _installation(program)
    for argument in command[1:]:
        named = Path(argument)
        if named.is_absolute() and named.exists() and not _is_of_hearth(named):
            if named.is_dir():
                if not _is_wide(named):
                    yield named
            else:
                yield from _installation(named)


def _programs(program: Path, path: str) -> Iterator[Path]:
    """Yield a program, all that its links lead to, and the interpreter that its first line names."""
    for _ in range(_MAX_LINKS):
        yield program
        if program.is_symlink():
            program = Path(os.path.normpath(program.parent / program.readlink()))
            continue
        interpreter = _interpreter(program, path)
        if interpreter is None:
            break
        program = interpreter


def _interpreter(script: Path, path: str) -> Path | None:
    try:
        with script.open("rb") as file:
            start = file.read(_SCRIPT_BYTES)
    except OSError:
        return None
    words = start.splitlines()[0][2:].decode(errors="replace").split() if start.startswith(b"#!") else []
    if not words:
        return None
    if Path(words[0]).name == "env":
        name = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
        found = shutil.which(name, path=path)
        return None if found is None else Path(found)
    return Path(words[0])


def _installation(file: Path) -> Iterator[Path]:
    """Yield the folder that a program's file belongs to; only the file if its folder holds other things too."""
    yield file
    own = [one for one in file.parents if not _is_shared(one)]
    folder = next((one for one in own if any((one / mark).exists() for mark in _MARKS)), file.parent)
    if folder == file.parent and folder.name in ("bin", "Scripts", "shims") and folder.parent in own:
        folder = folder.parent
    if not _is_shared(folder):
        yield folder
    settings = folder / "pyvenv.cfg"
    if settings.is_file():  # a virtual environment uses the files of the Python that it was made with
        lines = (line.partition("=") for line in settings.read_text(errors="replace").splitlines())
        home = next((value.strip() for name, _, value in lines if name.strip() == "home"), "")
        base = Path(home).parent
        if Path(home).is_absolute() and not _is_shared(base):
            yield base
        for name in ("python3", "python"):
            if (linked := Path(home, name)).is_symlink() and not _is_shared(linked.resolve().parents[1]):
                yield linked.resolve().parents[1]


def _is_of_hearth(path: Path) -> bool:
    own = paths()
    folders = (own.data, own.config, own.cache, own.log)
    return any(path.resolve().is_relative_to(one.resolve()) for one in folders)


def _is_wide(folder: Path) -> bool:
    """Return whether a folder holds all of the user's files, or the settings of other programs."""
    home = Path.home()
    return _is_among(folder, {home, *home.parents, *(home / name for name in _SETTINGS)})


def _is_shared(folder: Path) -> bool:
    """Return whether a folder of a program's file holds other things than the program."""
    mixed = {Path.home() / name for name in _MIXED} | set(map(Path, ("/tmp", "/var/tmp", "/dev/shm")))
    return _is_wide(folder) or _is_among(folder, mixed) or len(folder.resolve().parts) < 3


def _is_among(folder: Path, others: set[Path]) -> bool:
    return bool({folder, folder.resolve()} & (others | {one.resolve() for one in others}))
