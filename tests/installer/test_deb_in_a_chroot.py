"""The .deb on a clean Debian: apt installs it with what it needs, it answers, and apt removes all of it again."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import build
import pytest

MINUTES = 20
KEPT = "root/.local/share/Hearth/chats.db"


def why_not() -> str:
    if getattr(os, "geteuid", lambda: 1)() != 0:
        return "only root can make a chroot"
    if shutil.which("debootstrap") is None:
        return "debootstrap is not installed"
    if not list(build.DIST.glob("hearth_*.deb")):
        return f"there is no .deb in {build.DIST}: run installer/build.py first"
    return ""


@pytest.fixture
def debian(tmp_path: Path) -> Iterator[Path]:
    """A Debian of this system's release with nothing but its base."""
    root = tmp_path / "debian"
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "bookworm")
    subprocess.run(["debootstrap", "--variant=minbase", suite, root], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True)
    yield root
    subprocess.run(["umount", root / "proc"], check=True)


def inside(root: Path, *command: str) -> str:
    done = subprocess.run(
        ["chroot", root, "env", "-i", "HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8",
         "DEBIAN_FRONTEND=noninteractive", *command],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=MINUTES * 60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(2 * MINUTES * 60)
@pytest.mark.skipif(why_not() != "", reason=why_not())
def test_apt_installs_and_removes_it(debian: Path) -> None:
    """Cost: some minutes, 4 GB of disk, and the packages of a Debian mirror."""
    package = max(build.DIST.glob("hearth_*.deb"), key=lambda path: path.stat().st_mtime)
    shutil.copy(package, debian / "hearth.deb")
    inside(debian, "apt-get", "update")
    inside(debian, "apt-get", "install", "-y", "--no-install-recommends", "/hearth.deb")
    assert inside(debian, "hearth", "--version").split() == ["Hearth", build.version()]
    answer = inside(debian, "hearth-engine", "generate", "starter-chat", "--prompt", "Hello", "--max-tokens", "8",
                    "--device", "cpu", "--json")  # fmt: skip
    assert '"finish_reason"' in answer
    libraries = "LD_LIBRARY_PATH=/usr/lib/hearth/_internal:/usr/lib/hearth/_internal/PySide6/Qt/lib"
    plugins = "/usr/lib/hearth/_internal/PySide6/Qt/plugins/platforms/libqxcb.so"
    assert "not found" not in inside(debian, libraries, "ldd", plugins), "the window's libraries are needed packages"
    (debian / KEPT).parent.mkdir(parents=True, exist_ok=True)
    (debian / KEPT).touch()
    inside(debian, "apt-get", "remove", "-y", "hearth")
    left = [
        path for folder in ("usr", "etc", "opt", "var/lib/dpkg/info") for path in (debian / folder).rglob("*earth*")
    ]
    assert left == []
    assert (debian / KEPT).exists()
