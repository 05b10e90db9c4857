"""Installs packages of the operating system, or names the one command that does.

It runs a package manager only as root on Debian, Ubuntu and their children; everywhere else the person decides.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

OS_RELEASE = Path("/etc/os-release")
APT_LIMIT_S = 300.0

# By the manager's name in os-release's families; the first family that fits wins.
_FAMILIES = {
    "apt": ("debian", "ubuntu"),
    "dnf": ("fedora", "rhel", "centos"),
    "zypper": ("suse", "opensuse", "sles"),
    "pacman": ("arch",),
}


def os_release(path: Path = OS_RELEASE) -> dict[str, str]:
    """The fields of /etc/os-release; empty where there is none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, value in pairs}


def package_manager(release: dict[str, str]) -> str:
    """apt, dnf, zypper or pacman; "" on a system that none of them serves."""
    families = f"{release.get('ID', '')} {release.get('ID_LIKE', '')}".lower().split()
    for manager, names in _FAMILIES.items():
        if any(family.startswith(name) for family in families for name in names):
            return manager
    return ""


def is_root() -> bool:
    """Whether a package can be installed without asking for a password."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def install_command(manager: str, packages: Sequence[str]) -> str:
    """The one line to type that installs the packages."""
    sudo = "" if is_root() else "sudo "
    verb = {"apt": "apt-get install", "dnf": "dnf install", "zypper": "zypper install", "pacman": "pacman -S"}[manager]
    return f"{sudo}{verb} " + " ".join(f"'{name}'" if "(" in name else name for name in packages)


def can_install(manager: str) -> bool:
    """Whether `install_with_apt` may be called here."""
    return manager == "apt" and is_root() and shutil.which("apt-get") is not None


def install_with_apt(packages: Sequence[str], log: Path) -> bool:
    """Install through apt without a question; the package lists are fetched only when they lack something.

    Returns whether apt said it worked; what it printed is appended to `log`.
    """
    options = ["-o", "DPkg::Lock::Timeout=60", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20"]
    install = ["apt-get", *options, "install", "-y", "--no-install-recommends", *packages]
    return _logged(install, log) or (_logged(["apt-get", *options, "update"], log) and _logged(install, log))


def _logged(command: list[str], log: Path) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with log.open("a", encoding="utf-8") as out:
        out.write(f"$ {' '.join(command)}\n")
        out.flush()
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                timeout=APT_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            out.write(f"{error}\n")
            return False
    return done.returncode == 0
