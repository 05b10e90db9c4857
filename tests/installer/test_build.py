"""What installer/build.py hands out: contents, licences, the desktop's files, packages. The build itself is slow."""

from __future__ import annotations

import configparser
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from importlib import metadata
from pathlib import Path

import pytest

from app.third_party import licence_text, needed_distributions, parts

ROOT = Path(__file__).resolve().parents[2]
INSTALLER = ROOT / "installer"
NAME = "io.github.hearth.Hearth"

import build  # noqa: E402
import build_error  # noqa: E402 - conftest.py puts installer/ on the path
import contents  # noqa: E402
import icons  # noqa: E402
import linux_packages  # noqa: E402
import smoke_desktop  # noqa: E402
import smoke_test  # noqa: E402
import start  # noqa: E402
import system_licences  # noqa: E402

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="packages for Linux are made there")


# --- contents


def test_everything_of_ours_comes_along() -> None:
    places = {f"{folder}/{Path(file).name}" for file, folder in contents.own_files(ROOT)}
    assert "engine/_assets/models/starter-chat/starter-chat-q8_0.gguf" in places
    assert "engine/_assets/licences/hearth.txt" in places
    assert any(place.startswith("native_kernels/cuda/") and place.endswith(".cu") for place in places)
    assert not any("screenshots" in place or "__pycache__" in place for place in places)
    modules = contents.hidden_imports(ROOT)
    assert {
        "app.startup.bootstrap",
        "engine.service.host",
        "engine.library.service.host",
        "native_kernels.cpu.products.gemv",
    } <= set(modules)


@pytest.mark.skipif(not any(metadata.distributions(name="hearth")), reason="Hearth's own metadata is not installed")
def test_no_tool_of_the_tests_comes_along_and_nothing_needed_stays_behind() -> None:
    left_out = set(contents.left_out_modules())
    assert {"pytest", "mypy", "hypothesis", "tkinter", "sympy", "hf_xet"} <= left_out
    assert not {"numpy", "torch", "numba", "PySide6", "tokenizers", "jinja2", "app", "engine"} & left_out
    shipped = contents.shipped_distributions(left_out)
    assert {"hearth", "numpy", "torch", "pyside6-essentials"} <= set(shipped)
    assert not {"sympy", "networkx", "hf-xet", "pytest"} & set(shipped)


@pytest.mark.parametrize(
    ("place", "unused"),
    [
        ("torch/lib/libtorch_cpu.so", False),
        ("torch/test/some.bin", True),
        ("torch/bin/test_api", True),
        ("torch/bin/torch_shm_manager", False),  # looked for when torch is imported
        ("nvidia/cuda_nvrtc/lib/libnvrtc.so.12", False),
        ("nvidia/cuda_nvrtc/lib/libnvrtc.alt.so.12", True),
        ("nvidia/cuda_nvrtc/bin/nvrtc-builtins64_129.dll", False),
        ("PySide6/Qt/translations/qtbase_de.qm", False),
        ("PySide6/Qt/translations/qtbase_fr.qm", True),
        ("PySide6\\translations\\qtbase_zh_CN.qm", False),
        ("engine/_assets/models/tests/x", False),
        ("libstdc++.so.6", True),
        ("hearth-0.1.0.dist-info/direct_url.json", True),
    ],
)
def test_what_need_not_ship_does_not(place: str, unused: bool) -> None:
    assert contents.is_unused(place) is unused


def test_what_formulas_are_set_with_comes_along() -> None:
    for package, file in (("ziamath", "STIXTwoMath-Regular.ttf"), ("latex2mathml", "unimathsymbols.txt")):
        assert package in contents.PACKAGES_WITH_DATA
        assert any(path.name == file for path in metadata.files(package) or ())


# --- licences


def test_every_part_names_its_licence_and_brings_its_text() -> None:
    found = {part.key: part for part in parts()}
    assert {"python", *needed_distributions()} <= set(found)
    assert [part.key for part in found.values() if part.licence in ("", "–")] == []
    assert [key for key in found if len(licence_text(key)) < 300] == []
    assert "GNU LESSER GENERAL PUBLIC LICENSE" in licence_text("pyside6-essentials")


@linux_only
def test_licences_of_system_libraries_are_collected(tmp_path: Path) -> None:
    unknown = tmp_path / "libnobody.so.1"
    unknown.touch()
    listed = system_licences.collect([unknown], tmp_path / "made")
    assert listed == [
        {"key": "system-libnobody.so.1", "name": "libnobody.so.1 (libnobody.so.1)", "version": "–", "licence": "–"}
    ]
    assert (tmp_path / "made" / system_licences.LISTED).is_file()
    assert (tmp_path / "made" / "python.txt").stat().st_size > 1000


def test_names_of_licences_are_read_from_a_debian_copyright_file(tmp_path: Path) -> None:
    file = tmp_path / "copyright"
    file.write_text("Files: *\nLicense: MIT\n\nFiles: a\nLicense: BSD-3-clause\n\nLicense: MIT\n text\n")
    assert system_licences.licences_in(file) == "MIT, BSD-3-clause"
    assert system_licences.licences_in(tmp_path / "none") == "–"


# --- the desktop's files


def test_desktop_entry_names_what_the_window_calls_itself() -> None:
    entry = configparser.ConfigParser(interpolation=None)
    entry.optionxform = str  # type: ignore[assignment,method-assign]
    entry.read(INSTALLER / "linux" / f"{NAME}.desktop", encoding="utf-8")
    values = entry["Desktop Entry"]
    assert values["Icon"] == NAME
    assert values["Exec"] == "hearth %F"
    assert f'setDesktopFileName("{NAME}")' in (ROOT / "app" / "startup" / "bootstrap.py").read_text(encoding="utf-8")
    kind = ElementTree.parse(INSTALLER / "linux" / f"{NAME}.xml").getroot()[0].attrib["type"]
    assert values["MimeType"] == f"{kind};"
    if validate := shutil.which("desktop-file-validate"):
        done = subprocess.run([validate, INSTALLER / "linux" / f"{NAME}.desktop"], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "")


def test_metainfo_is_sound(tmp_path: Path) -> None:
    text = linux_packages.metainfo(INSTALLER / "linux" / f"{NAME}.metainfo.xml", "1.2.3", 0)
    root = ElementTree.fromstring(text)
    assert root.findtext("id") == NAME
    release = root.find("releases/release")
    assert release is not None
    assert release.attrib == {"version": "1.2.3", "date": "1970-01-01"}
    file = tmp_path / f"{NAME}.metainfo.xml"
    file.write_text(text, encoding="utf-8")
    if validate := shutil.which("appstreamcli"):
        done = subprocess.run([validate, "validate", "--no-net", str(file)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_icons_are_drawn_in_every_size(tmp_path: Path) -> None:
    icons.draw_all(tmp_path)
    for size in icons.SIZES:
        data = (tmp_path / "hicolor" / f"{size}x{size}" / "apps" / f"{NAME}.png").read_bytes()
        assert data.startswith(b"\x89PNG")
        assert struct.unpack(">II", data[16:24]) == (size, size)
    assert (tmp_path / "hicolor" / "scalable" / "apps" / f"{NAME}.svg").read_bytes() == icons.DRAWING.read_bytes()
    reserved, kind, count = struct.unpack_from("<HHH", (tmp_path / "hearth.ico").read_bytes())
    assert (reserved, kind, count) == (0, 1, len(icons.WINDOWS_SIZES))
    assert icons.drawing(16) != icons.drawing(24)


# --- packages


@pytest.fixture
def tree(tmp_path: Path) -> linux_packages.Tree:
    """A program of one small script, ready to be packed."""
    program = tmp_path / "program" / "hearth"
    program.mkdir(parents=True)
    (program / "hearth").write_text('#!/bin/sh\necho started with "$@"\n')
    (program / "hearth").chmod(0o755)
    (program / "hearth-engine").symlink_to("hearth")
    for size in ("16x16", "scalable"):
        (tmp_path / "build" / "icons" / "hicolor" / size / "apps").mkdir(parents=True)
        (tmp_path / "build" / "icons" / "hicolor" / size / "apps" / f"{NAME}.png").touch()
    return linux_packages.Tree(program, tmp_path / "build", ROOT, "1.2.3")


@linux_only
@pytest.mark.skipif(shutil.which("xz") is None, reason="xz is not installed")
def test_tarball_installs_for_one_person_and_goes_again(tree: linux_packages.Tree, tmp_path: Path) -> None:
    packed = linux_packages.tarball(tree, tmp_path)
    with tarfile.open(packed) as archive:
        assert {(entry.uid, entry.uname, entry.mtime) for entry in archive} == {(0, "", tree.made_at_s)}
        archive.extractall(tmp_path / "out", filter="data")
    home = tmp_path / "a home"
    kept = home / ".local" / "share" / "Hearth" / "chats.db"
    kept.parent.mkdir(parents=True)
    kept.touch()
    script = tmp_path / "out" / "hearth-1.2.3" / "install.sh"
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    for _ in range(2):  # over an older one too
        subprocess.run([script], env=environment, check=True, capture_output=True)
    started = subprocess.run([home / ".local/bin/hearth", "a b"], capture_output=True, text=True, check=True)
    assert started.stdout == "started with a b\n"
    entry = (home / f".local/share/applications/{NAME}.desktop").read_text(encoding="utf-8")
    assert f'Exec="{home}/.local/bin/hearth" %F' in entry
    subprocess.run([script, "--uninstall"], env=environment, check=True, capture_output=True)
    left = [path for path in home.rglob("*") if path.is_file() and "mime" not in path.parts]
    assert [path for path in left if path.name not in ("mimeinfo.cache", "icon-theme.cache")] == [kept]


@linux_only
@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")
def test_deb_holds_program_and_desktop_files(
    tree: linux_packages.Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linux_packages, "needed_packages", lambda tree: ["libc6 (>= 2.31)", "libegl1"])
    packed = linux_packages.deb(tree, tmp_path)
    said = subprocess.run(["dpkg-deb", "--info", packed], capture_output=True, text=True, check=True).stdout
    assert "Version: 1.2.3" in said
    assert "Depends: libc6 (>= 2.31), libegl1" in said
    listed = subprocess.run(["dpkg-deb", "--contents", packed], capture_output=True, text=True, check=True).stdout
    for place in (
        "./usr/lib/hearth/hearth", "./usr/lib/hearth/hearth-engine -> hearth",
        "./usr/bin/hearth -> ../lib/hearth/hearth",
        f"./usr/share/applications/{NAME}.desktop", f"./usr/share/metainfo/{NAME}.metainfo.xml",
        f"./usr/share/mime/packages/{NAME}.xml", f"./usr/share/icons/hicolor/16x16/apps/{NAME}.png",
        "./usr/share/doc/hearth/copyright",
    ):  # fmt: skip
        assert place in listed
    assert all(" root/root " in line for line in listed.splitlines())


@linux_only
def test_needs_are_read_from_the_files(tree: linux_packages.Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("objdump") is None:
        pytest.skip("objdump is not installed")
    library = Path(struct.__file__).parent / "lib-dynload"
    extension = next(library.glob("_ctypes*.so"))
    assert "libc.so.6" in linux_packages.needed_sonames(extension)
    assert 2 <= linux_packages.newest_glibc([extension]) < 100


def test_sums_are_as_sha256sum_checks_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "DIST", tmp_path)
    (tmp_path / "a").write_bytes(b"abc")
    sums = build.write_sums([tmp_path / "a"])
    assert sums.read_text() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n"
    assert build.size_of(tmp_path) == 3 + sums.stat().st_size


def test_version_is_one_everywhere() -> None:
    import engine

    assert build.version() == engine.__version__


def test_build_says_what_to_do_where_a_tool_is_missing(tree: linux_packages.Tree, tmp_path: Path) -> None:
    path = os.environ["PATH"]
    os.environ["PATH"] = ""
    try:
        with pytest.raises(build_error.BuildError, match="dpkg-deb is not installed"):
            linux_packages.deb(tree, tmp_path)
    finally:
        os.environ["PATH"] = path


def test_no_installer_is_made_without_microsofts_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PROGRAM", tmp_path)
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    monkeypatch.setenv("ProgramFiles(x86)", str(tmp_path))
    for name in build.RUNTIME:
        with pytest.raises(build_error.BuildError, match=name):
            build.windows_installer("1.0", build.setup_progress.Progress(build.setup_progress.NORMAL))
        (tmp_path / name.upper()).with_suffix(".dll").touch()
    with pytest.raises(build_error.BuildError, match="Inno Setup 6 is not installed"):
        build.windows_installer("1.0", build.setup_progress.Progress(build.setup_progress.NORMAL))


# --- the start of the built program


def test_programs_that_we_start_get_the_library_path_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/ours")
    monkeypatch.setenv("LD_LIBRARY_PATH_ORIG", "/theirs")
    start.restore_library_path()
    assert os.environ["LD_LIBRARY_PATH"] == "/theirs"
    start.restore_library_path()
    assert "LD_LIBRARY_PATH" not in os.environ


@pytest.mark.parametrize("given", [["--version"], ["--engine-host", "--library"]])
def test_name_of_the_file_says_which_program_it_is(given: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("engine.commands.cli.main", lambda: asked.append("command line") or 0)
    monkeypatch.setattr("app.startup.command_line.main", lambda: asked.append("window") or 0)
    for name in ("hearth", "hearth-engine"):
        monkeypatch.setattr(sys, "argv", [f"/somewhere/{name}", *given])
        assert start.main() == 0
    assert asked == ["window", "window" if "--engine-host" in given else "command line"]


def test_smoke_test_gives_the_program_nothing_of_this_python(tmp_path: Path) -> None:
    class Nowhere(smoke_desktop.VirtualScreen):
        pass

    given = smoke_test.environment(tmp_path, Nowhere(":9"))
    assert given["DISPLAY"] == ":9"
    assert not [name for name in given if name.startswith(("PYTHON", "VIRTUAL", "LD_"))]
    assert shutil.which("python3", path=given["PATH"]) is None


@pytest.mark.slow
@pytest.mark.timeout(3600)
@linux_only
def test_built_program_answers(tmp_path: Path) -> None:
    """The whole build and the smoke test of it, packages too. Cost: 10 to 30 min, and 5 GB of disk."""
    for command in (
        [sys.executable, INSTALLER / "build.py", "--python", sys.executable],
        [sys.executable, INSTALLER / "smoke_test.py", build.PROGRAM],
    ):
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout
