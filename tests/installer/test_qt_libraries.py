"""Which system library is missing, which package holds it, and who may install it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import qt_libraries
import system_packages

LDD = """/x/PySide6/Qt/plugins/platforms/libqxcb.so:
\tlinux-vdso.so.1 (0x00007fb015b46000)
\tlibQt6XcbQpa.so.6 => /x/PySide6/Qt/lib/libQt6XcbQpa.so.6 (0x00007fb015aa0000)
\tlibQt6Gui.so.6 => not found
\tlibxcb-cursor.so.0 => /lib/x86_64-linux-gnu/libxcb-cursor.so.0 (0x00007fb01598e000)
\tlibxcb-icccm.so.4 => not found
\tlibxcb-keysyms.so.1 => not found
\tlibxcb-icccm.so.4 => not found
\t/lib64/ld-linux-x86-64.so.2 (0x00007fb015b48000)
"""


def test_ldd_is_read_and_qts_own_libraries_are_no_business_of_the_system() -> None:
    assert qt_libraries.parse_ldd(LDD) == ["libxcb-icccm.so.4", "libxcb-keysyms.so.1"]


@pytest.mark.parametrize(
    ("manager", "packages", "unknown"),
    [
        ("apt", ["libglib2.0-0", "libxcb-icccm4"], ["libnew.so.3"]),
        ("pacman", ["glib2", "xcb-util-wm"], ["libnew.so.3"]),
        ("dnf", ["libglib-2.0.so.0()(64bit)", "libgthread-2.0.so.0()(64bit)", "libnew.so.3()(64bit)",
                 "libxcb-icccm.so.4()(64bit)"], []),
        ("", [], ["libglib-2.0.so.0", "libgthread-2.0.so.0", "libnew.so.3", "libxcb-icccm.so.4"]),
    ],
)  # fmt: skip
def test_packages_by_their_system(manager: str, packages: list[str], unknown: list[str]) -> None:
    sonames = ["libglib-2.0.so.0", "libgthread-2.0.so.0", "libnew.so.3", "libxcb-icccm.so.4"]
    assert qt_libraries.packages_for(sonames, manager) == (packages, unknown)


def test_without_ldd_the_loader_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(qt_libraries.shutil, "which", lambda name: None)
    monkeypatch.setattr(qt_libraries, "_loads", lambda soname: soname != "libEGL.so.1")
    assert qt_libraries.missing_for_offscreen(tmp_path) == ["libEGL.so.1"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux leaves these libraries to the system")
def test_the_lists_name_every_library_that_the_installed_qt_asks_of_the_system() -> None:
    import PySide6

    known = {*qt_libraries.OFFSCREEN, *qt_libraries.DISPLAY}
    indirect = ("ld-linux", "libQt6", "libpyside6", "libshiboken6", "libicu")
    always_there = {
        "libc.so.6",
        "libm.so.6",
        "libdl.so.2",
        "libpthread.so.0",
        "libgcc_s.so.1",
        "libstdc++.so.6",
        "librt.so.1",
    }
    readelf = qt_libraries.shutil.which("readelf")
    if readelf is None:
        pytest.skip("readelf (package binutils) is not on this machine")
    place = Path(PySide6.__file__).parent
    libraries = ["Core", "Gui", "Widgets", "Svg", "Test", "DBus", "XcbQpa", "OpenGL"]
    files = [place / "Qt/lib" / f"libQt6{name}.so.6" for name in libraries]
    files += [place / "Qt/plugins/platforms" / f"libq{name}.so" for name in ("xcb", "offscreen")]
    needed = set()
    for file in files:
        output = qt_libraries.subprocess.run([readelf, "-d", file], capture_output=True, text=True, check=True).stdout
        needed |= {line.split("[")[1].rstrip("]") for line in output.splitlines() if "(NEEDED)" in line}
    assert len(needed) > 20
    assert {name for name in needed if not name.startswith(indirect)} - known - always_there == set()


def test_the_installed_qt_starts_here() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux leaves these libraries to the system")
    import PySide6

    assert qt_libraries.missing_for_offscreen(Path(PySide6.__file__).parent) == []


@pytest.mark.parametrize(
    ("text", "manager"),
    [
        ("ID=debian\nVERSION_ID=12\n", "apt"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "apt"),
        ('ID="fedora"\n', "dnf"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf"),
        ('ID="opensuse-tumbleweed"\nID_LIKE="opensuse suse"\n', "zypper"),
        ("ID=arch\n", "pacman"),
        ("ID=alpine\n", ""),
        ("", ""),
    ],
)
def test_the_systems_package_manager(tmp_path: Path, text: str, manager: str) -> None:
    file = tmp_path / "os-release"
    file.write_text(text)
    assert system_packages.package_manager(system_packages.os_release(file)) == manager
    assert system_packages.os_release(tmp_path / "none") == {}


def test_the_one_command_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_packages, "is_root", lambda: False)
    assert system_packages.install_command("apt", ["a", "b"]) == "sudo apt-get install a b"
    assert system_packages.install_command("dnf", ["liba.so()(64bit)"]) == "sudo dnf install 'liba.so()(64bit)'"
    assert not system_packages.can_install("apt")
    monkeypatch.setattr(system_packages, "is_root", lambda: True)
    monkeypatch.setattr(system_packages.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert system_packages.install_command("pacman", ["a"]) == "pacman -S a"
    assert system_packages.can_install("apt")
    assert not system_packages.can_install("dnf")


@pytest.mark.parametrize(("worked", "expected"), [([True], 1), ([False, True, True], 3), ([False, False], 2)])
def test_apts_lists_are_fetched_only_when_they_lack_something(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, worked: list[bool], expected: int
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], log: Path) -> bool:
        asked.append(command)
        return worked[len(asked) - 1]

    monkeypatch.setattr(system_packages, "_logged", run)
    assert system_packages.install_with_apt(["libxcb-icccm4"], tmp_path / "log") is worked[-1]
    assert len(asked) == expected
    assert asked[0][-4:] == ["install", "-y", "--no-install-recommends", "libxcb-icccm4"]
    assert expected == 1 or asked[1][-1] == "update"


def test_what_apt_prints_goes_to_the_log_and_a_missing_apt_is_a_no(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert system_packages._logged([sys.executable, "-c", "print('hello')"], log)
    assert not system_packages._logged([sys.executable, "-c", "raise SystemExit(100)"], log)
    assert not system_packages._logged([str(tmp_path / "no-such-program")], log)
    assert "hello" in log.read_text()
