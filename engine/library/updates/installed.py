"""How this Hearth was installed, and the versions that are beside it.

installer/linux/install.sh puts each version into a folder of its own, lib/hearth/VERSION, and lets the link
lib/hearth/current lead to one of them. A running program keeps its folder while the link changes. Hearth installs
updates by itself only there; it hands a .deb over to the system. Windows' installer is not offered.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform as system
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from engine.errors import UpdateError
from engine.job import Job
from engine.library.updates.manifest import numbers

CURRENT = "current"
INSTALL_S = 600.0
_DEB = Path("/usr/lib/hearth")


def _program() -> Path:
    return Path(sys.executable).resolve()


def versions_folder() -> Path | None:
    """Return lib/hearth if this program was installed by install.sh; else None."""
    if not getattr(sys, "frozen", False):
        return None
    folder = _program().parent.parent
    return folder if (folder / CURRENT).is_symlink() and folder.name == "hearth" else None


def platform() -> str:
    """Return the name of the files that this Hearth installs from, such as linux-x86_64-deb; "" if none."""
    kind = ""
    if versions_folder() is not None:
        kind = "tarball"
    elif getattr(sys, "frozen", False) and _program().parent == _DEB:
        kind = "deb"
    return f"{sys.platform}-{system.machine()}-{kind}" if kind else ""


def start_command() -> list[str]:
    """Return the command of the built program, of the current version where several are installed."""
    folder = versions_folder()
    return [sys.executable] if folder is None else [str(folder / CURRENT / _program().name)]


def previous() -> str:
    """Return the version beside this one that can be gone back to; "" if there is none."""
    folder, own = versions_folder(), _program().parent.name
    try:
        names = [] if folder is None else [path.name for path in folder.iterdir() if _is_version(path)]
    except OSError:
        names = []
    older = [name for name in names if numbers(name) < numbers(own)]
    return max(older, key=numbers, default="")


def _is_version(path: Path) -> bool:
    """Return whether a version is there. An installation that was killed leaves folders of other names."""
    return path.name[:1].isdigit() and (path / "hearth").is_file()


def go_back(version: str) -> None:
    """Make the next start use the installed version `version`. Raises: UpdateError."""
    folder = versions_folder()
    if folder is None or not _is_version(folder / version) or Path(version).name != version:
        raise UpdateError.of("none", f"Version {version} is not installed.", "Install it from its file.")
    link = folder / f"{CURRENT}.new"
    try:
        with contextlib.suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(version)
        os.replace(link, folder / CURRENT)
    except OSError as error:
        raise UpdateError.of("disk", f"The version could not be changed: {error.strerror or error}.", "") from error


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes from downloading or installing an update in the folder. Raises: UpdateError "busy"."""
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise UpdateError.of(
            "busy", "Another Hearth is downloading or installing an update.", "Wait until it has finished."
        ) from error
    finally:
        os.close(descriptor)


def install(archive: Path, sha256: str, job: Job | None = None) -> None:
    """Install a verified tarball beside this version, with its own install.sh, and make it the current one.

    The versions before this one are deleted. Raises: UpdateError, Cancelled.
    """
    job, folder = job or Job(), versions_folder()
    if folder is None:
        raise UpdateError.of("platform", "This Hearth does not install updates by itself.", "Install it from its file.")

    def checked(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        job.stop_if_cancelled()
        return tarfile.data_filter(member, path)

    try:
        with alone_in(archive.parent), archive.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                raise UpdateError.of("hash", f"{archive.name} has changed since its download.", "Download it again.")
            file.seek(0)
            with tempfile.TemporaryDirectory(dir=archive.parent, prefix="unpacked-") as unpacked:
                with tarfile.open(fileobj=file) as tar:
                    tar.extractall(unpacked, filter=checked)
                script = next(Path(unpacked).glob("*/install.sh"), None)
                if script is None:
                    raise UpdateError.of("damaged", f"{archive.name} has no install.sh.", "")
                prefix = str(folder.parent.parent)
                done = subprocess.run(
                    ["sh", str(script)], env={**os.environ, "PREFIX": prefix, "PYINSTALLER_RESET_ENVIRONMENT": "1"},
                    stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_S, check=False,
                )  # fmt: skip
        if done.returncode != 0:
            why = done.stderr.strip()[-300:] or f"status {done.returncode}"
            raise UpdateError.of("install", f"The new version could not be installed: {why}.", "This version stays.")
        archive.unlink()
    except (OSError, tarfile.TarError, subprocess.TimeoutExpired) as error:
        what = f"The new version could not be installed: {error}."
        raise UpdateError.of("install", what, "This version stays.") from error
