"""Packs the built program for Linux: a .deb for Debian, Ubuntu and their children, and a tarball for any other system.

Both hold the same folder of the program, the desktop's entry, icons, metainfo and the type of model files. The .deb
asks for exactly those system packages whose libraries the program loads and does not bring.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import qt_libraries
from build_error import BuildError

NAME = "io.github.hearth.Hearth"
MAINTAINER = "The Hearth developers <hearth@users.noreply.github.com>"
XZ_LEVEL = "-3"  # a third of the time of -6
ZSTD_LEVEL = "-z10"  # Debian 12 and Ubuntu 22.04 read it; unpacking a gigabyte from xz would take half a minute
DEB_LIBRARY = Path("usr/lib/hearth")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# Of libraries that a system without a desktop may lack.
_PACKAGES = {
    "libwayland-egl.so.1": "libwayland-egl1",
    **{
        soname: debian
        for table in (qt_libraries.OFFSCREEN, qt_libraries.DISPLAY, qt_libraries.WAYLAND)
        for soname, (debian, _) in table.items()
    },
}
_GLIBC = re.compile(rb"GLIBC_2\.(\d+)\b")
_ELF = b"\x7fELF"
# Loaded from plugins or on request only, so that they are no need: the GPU's driver, compositors, sound.
_NO_NEED = re.compile(r"^(libcuda|libnvidia|libtbb|libgtk|libgdk|libatk|libcairo|libpango|ld-linux|linux-vdso)")


class Tree:
    """The files of both packages."""

    def __init__(self, program: Path, build: Path, root: Path, version: str) -> None:
        self.program, self.build, self.root, self.version = program, build, root, version
        self.machine = platform.machine()

    @cached_property
    def made_at_s(self) -> int:
        """Seconds since 1970 that every file is stamped with: of the last commit, so that a build can be repeated."""
        given = os.environ.get("SOURCE_DATE_EPOCH", "")
        if given.isdigit():
            return int(given)
        done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=self.root, capture_output=True, check=False)
        return int(done.stdout) if done.returncode == 0 and done.stdout.strip() else int(datetime.now(UTC).timestamp())

    def write_share(self, share: Path) -> None:
        """The desktop's files, as they lie below /usr/share."""
        linux = self.root / "installer" / "linux"
        _copy(linux / f"{NAME}.desktop", share / "applications" / f"{NAME}.desktop")
        _copy(linux / f"{NAME}.xml", share / "mime" / "packages" / f"{NAME}.xml")
        target = share / "metainfo" / f"{NAME}.metainfo.xml"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(metainfo(linux / f"{NAME}.metainfo.xml", self.version, self.made_at_s), encoding="utf-8")
        shutil.copytree(self.build / "icons" / "hicolor", share / "icons" / "hicolor", dirs_exist_ok=True)

    @cached_property
    def elf_files(self) -> list[Path]:
        """Programs and libraries of the folder."""
        found = []
        for path in sorted(self.program.rglob("*")):
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    if file.read(4) == _ELF:
                        found.append(path)
        return found


def metainfo(template: Path, version: str, made_at_s: int) -> str:
    day = datetime.fromtimestamp(made_at_s, UTC).strftime("%Y-%m-%d")
    return template.read_text(encoding="utf-8").replace("@VERSION@", version).replace("@DATE@", day)


# --- the tarball


def tarball(tree: Tree, folder: Path) -> Path:
    """hearth-VERSION-linux-MACHINE.tar.xz, to be unpacked anywhere or installed with its install.sh."""
    stage = tree.build / "tarball"
    shutil.rmtree(stage, ignore_errors=True)
    tree.write_share(stage / "share")
    script = (tree.root / "installer" / "linux" / "install.sh").read_text(encoding="utf-8")
    (stage / "install.sh").write_text(script.replace("@VERSION@", tree.version), encoding="utf-8")
    (stage / "install.sh").chmod(0o755)
    _copy(tree.root / "LICENSE", stage / "LICENSE")
    target = folder / f"hearth-{tree.version}-linux-{tree.machine}.tar.xz"
    top = f"hearth-{tree.version}"

    def of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = tree.made_at_s
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with target.open("wb") as file, subprocess.Popen(
        ["xz", XZ_LEVEL, "-T0", "-c"], stdin=subprocess.PIPE, stdout=file
    ) as xz:  # fmt: skip
        assert xz.stdin is not None, "it is piped"
        with tarfile.open(fileobj=xz.stdin, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            archive.add(stage, top, filter=of_nobody)
            archive.add(tree.program, f"{top}/hearth", filter=of_nobody)
        xz.stdin.close()
        if xz.wait() != 0:
            raise BuildError("xz could not pack the tarball.", "free some space on the disk, then run it again.")
    return target


# --- the .deb


def deb(tree: Tree, folder: Path) -> Path:
    """hearth_VERSION_ARCHITECTURE.deb. Raises: BuildError where dpkg-deb is missing or refuses."""
    if shutil.which("dpkg-deb") is None:
        raise BuildError("dpkg-deb is not installed.", "install the package dpkg, then run it again.")
    stage = tree.build / "deb"
    shutil.rmtree(stage, ignore_errors=True)
    library = stage / DEB_LIBRARY
    library.parent.mkdir(parents=True)
    shutil.copytree(tree.program, library, symlinks=True, copy_function=os.link)  # takes no room
    for name in ("hearth", "hearth-engine"):
        link = stage / "usr" / "bin" / name
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(f"../lib/hearth/{name}")
    tree.write_share(stage / "usr" / "share")
    _copy(tree.root / "assets" / "licences" / "hearth.txt", stage / "usr/share/doc/hearth/copyright")
    architecture = _ARCHITECTURES.get(tree.machine, tree.machine)
    control = stage / "DEBIAN" / "control"
    control.parent.mkdir()
    n_bytes = sum(path.lstat().st_size for path in stage.rglob("*") if path.is_file())
    control.write_text(control_text(tree.version, architecture, n_bytes, needed_packages(tree)), encoding="utf-8")
    for path in (stage, *stage.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    target = folder / f"hearth_{tree.version}_{architecture}.deb"
    done = subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zzstd", ZSTD_LEVEL, "--build", str(stage), str(target)],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(tree.made_at_s)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise BuildError(f"dpkg-deb failed: {done.stderr.strip()}", "read its output, then run it again.")
    return target


def control_text(version: str, architecture: str, n_bytes: int, needs: list[str]) -> str:
    """The package's own description."""
    return f"""Package: hearth
Version: {version}
Architecture: {architecture}
Maintainer: {MAINTAINER}
Section: utils
Priority: optional
Installed-Size: {-(-n_bytes // 1024)}
Depends: {", ".join(needs)}
Recommends: fonts-dejavu-core, gnome-keyring | kwalletmanager, xdg-desktop-portal
Description: chat with language models on this PC
 Hearth chats with language models on this PC, with an engine of its own that
 skips the neurons which do not fire. Where there is an NVIDIA GPU, it computes
 the busy neurons there and the others on the CPU at the same time.
 .
 A small model comes along. Nothing that is typed leaves the PC.
"""


def needed_packages(tree: Tree) -> list[str]:
    """The Debian packages of the libraries that the program loads and does not bring. Raises: BuildError."""
    places = dict(_known_places())
    brought = {path.name for path in tree.elf_files}
    wanted = sorted({name for path in tree.elf_files for name in needed_sonames(path)} - brought)
    packages = set()
    for soname in wanted:
        if _NO_NEED.match(soname):
            continue
        if soname in places:
            packages.add(_package_of(places[soname]))
        elif soname in _PACKAGES:
            packages.add(_PACKAGES[soname])
        else:
            raise BuildError(f"{soname} is on no path of this system.", "install its package, then build again.")
    packages.discard("libc6")
    return [f"libc6 (>= 2.{newest_glibc(tree.elf_files)})", *sorted(packages)]


def newest_glibc(files: list[Path]) -> int:
    """n of the newest GLIBC_2.n that one of the files asks for."""
    found = {0}
    for path in files:
        found.update(int(number) for number in _GLIBC.findall(path.read_bytes()))
    return max(found)


def needed_sonames(path: Path) -> list[str]:
    """The libraries that a file names as needed."""
    done = subprocess.run(["objdump", "-p", str(path)], capture_output=True, text=True, check=False)
    return re.findall(r"^\s+NEEDED\s+(\S+)$", done.stdout, re.M)


def _known_places() -> Iterator[tuple[str, str]]:
    """soname and path of every library that the system's loader knows."""
    done = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False)
    for line in reversed(done.stdout.splitlines()):
        if "=>" in line:
            yield line.split()[0], line.rpartition("=> ")[2].strip()


def _package_of(path: str) -> str:
    for place in dict.fromkeys((path, str(Path(path).resolve()), path.removeprefix("/usr"))):
        done = subprocess.run(["dpkg-query", "-S", place], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.partition(":")[0]
    raise BuildError(f"{path} belongs to no package.", "build on a system where every library does.")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
