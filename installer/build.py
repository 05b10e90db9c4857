#!/usr/bin/env python3
"""Builds Hearth to be given away: the program in one folder, then what people install it from.

    python3 installer/build.py                    # Linux: a .deb and a tarball; Windows: an installer
    python3 installer/build.py --program-only     # just the folder build/program/hearth
    python3 installer/build.py --packages-only    # pack that folder

Like installer/bootstrap.py it needs nothing but Python's standard library; what else it takes comes into the .venv. The
packages go to dist/, with their SHA-256 sums and sizes. PyTorch has to be a build without CUDA: --torch-index.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
for place in (ROOT, HERE):  # `python3 -I` leaves the script's own folder out
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))

import bootstrap  # noqa: E402 - the path above comes first
import linux_packages  # noqa: E402
import sbom  # noqa: E402
import setup_progress  # noqa: E402
import setup_venv  # noqa: E402
from build_error import BuildError  # noqa: E402
from setup_failures import SetupError  # noqa: E402

BUILD = ROOT / "build"
PROGRAM = BUILD / "program" / "hearth"
DIST = ROOT / "dist"
MOST_BYTES = 450_000_000  # of any file that people download
# Microsoft's libraries that PyTorch imports and a bare Windows lacks; no package has the second one. PyInstaller copies
# them from the Windows that it runs on, but none from Wine.
RUNTIME = ("msvcp140.dll", "msvcp140_atomic_wait.dll", "vcruntime140.dll", "vcruntime140_1.dll")
_CUDA_QUESTION = "import sys, torch; sys.exit(0 if torch.version.cuda is None else 3)"


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    given = parse(sys.argv[1:] if argv is None else argv)
    progress = setup_progress.Progress(setup_progress.NORMAL)
    try:
        if not given.packages_only:
            python = given.python or make_ready(given.torch_index, given.any_torch_build, progress)
            need_torch_without_cuda(python)
            write_release_feed(given.release_feed)
            freeze(python, progress)
        if given.program_only:
            return 0
        made = make_packages(version(), progress)
        write_sums(made)
    except (SetupError, BuildError) as failure:
        print(failure, file=sys.stderr)
        return 1
    report = {path.name: path.stat().st_size for path in made}
    print(json.dumps({"program_bytes": size_of(PROGRAM), "packages": report}, indent=1))
    too_big = [name for name, n_bytes in report.items() if n_bytes > MOST_BYTES]
    if too_big:
        print(f"Larger than {MOST_BYTES / 1e6:.0f} MB: {', '.join(too_big)}", file=sys.stderr)
    return 1 if too_big else 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 installer/build.py", description="Build Hearth for distribution.",
        epilog="Then try what was built: python3 installer/smoke_test.py build/program/hearth",
    )  # fmt: skip
    parser.add_argument("--torch-index", metavar="URL", help="take PyTorch from this package index, and remember it")
    parser.add_argument("--any-torch-build", action="store_true", help="accept a build whose hash is not known")
    parser.add_argument(
        "--release-feed",
        metavar="URL",
        default="",
        help="where this build looks for newer versions, if allowed",
    )
    parser.add_argument("--python", type=Path, metavar="FILE", help="a Python with all packages, instead of .venv")
    steps = parser.add_mutually_exclusive_group()
    steps.add_argument("--program-only", action="store_true", help="stop when the program's folder is there")
    steps.add_argument("--packages-only", action="store_true", help="pack the program's folder as it is")
    return parser.parse_args(argv)


def make_ready(torch_index: str | None, any_torch: bool, progress: setup_progress.Progress) -> Path:
    """The Python of a .venv with everything in it, PyInstaller too. Raises: SetupError."""
    venv = setup_venv.Venv(ROOT)
    bootstrap.make_ready(venv, "setup", torch_index, any_torch, progress, ["setup"])
    with progress.stage("Installing PyInstaller"):
        command = [str(venv.python), "-I", "-m", "pip", "install", "--quiet", "--only-binary", ":all:", "--no-deps",
                   "--require-hashes", "-r", str(venv.locked / "build.txt")]  # fmt: skip
        run(command, "PyInstaller could not be installed.", "read pip's output above, then run it again.")
    return venv.python


def need_torch_without_cuda(python: Path) -> None:
    """Raises: BuildError where PyTorch would bring gigabytes that Hearth does not use."""
    run([str(python), "-c", _CUDA_QUESTION], "PyTorch is not here, or it is a build for CUDA.",
        "run it again with --torch-index and the index of PyTorch's builds for the CPU.")  # fmt: skip


def write_release_feed(address: str) -> None:
    """Where the program looks for newer versions (engine/library/hub/release.py); without an address it never does."""
    file = BUILD / "release.json"
    file.unlink(missing_ok=True)
    if address:
        BUILD.mkdir(exist_ok=True)
        file.write_text(json.dumps({"feed": address}) + "\n", encoding="utf-8")


def freeze(python: Path, progress: setup_progress.Progress) -> None:
    """Rebuild the program's folder. Cost: 3 to 10 min. Raises: SetupError."""
    with progress.stage("Drawing the icons"):
        offscreen = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
        run([str(python), str(HERE / "icons.py"), str(BUILD / "icons")], "The icons could not be drawn.", "", offscreen)
    with progress.stage("Building the program"):
        command = [str(python), "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN", "--distpath",
                   str(PROGRAM.parent), "--workpath", str(BUILD / "work"), str(HERE / "hearth.spec")]  # fmt: skip
        began = time.monotonic()
        run(command, "PyInstaller failed.", "read its output above, then run it again.")
        progress.note(f"{size_of(PROGRAM) / 1e6:.0f} MB after {time.monotonic() - began:.0f} s in {PROGRAM}")
    if sys.platform != "win32":
        link = PROGRAM / "hearth-engine"
        link.unlink(missing_ok=True)
        link.symlink_to("hearth")


def make_packages(number: str, progress: setup_progress.Progress) -> list[Path]:
    """Build the packages for users and their SBOM in dist/. Raises: BuildError."""
    DIST.mkdir(exist_ok=True)
    tree = linux_packages.Tree(PROGRAM, BUILD, ROOT, number)
    made = [sbom.write(PROGRAM, DIST / f"hearth-{number}-{sys.platform}.cdx.json", number, tree.made_at_s)]
    if sys.platform == "win32":
        return [*made, windows_installer(number, progress)]
    for words, make in (("Packing the tarball", linux_packages.tarball), ("Packing the .deb", linux_packages.deb)):
        with progress.stage(words):
            made.append(make(tree, DIST))
    return made


def windows_installer(number: str, progress: setup_progress.Progress) -> Path:
    """The installer that Inno Setup makes. Raises: BuildError where that is not installed, or RUNTIME is incomplete."""
    found = {path.name.lower() for path in PROGRAM.rglob("*.dll")}
    if missing := [name for name in RUNTIME if name not in found]:
        raise BuildError(
            f"The program lacks {', '.join(missing)}.", "build it on a Windows that has Visual C++'s runtime."
        )
    compiler = shutil.which("ISCC")
    for variable in ("ProgramFiles(x86)", "ProgramFiles"):
        inno = Path(os.environ.get(variable, ""), "Inno Setup 6", "ISCC.exe")
        compiler = compiler or (str(inno) if inno.is_file() else None)
    if compiler is None:
        raise BuildError("Inno Setup 6 is not installed.", "install it, then run it again.")
    with progress.stage("Packing the installer"):
        command = [compiler, "/Q", f"/DVersion={number}", f"/DProgram={PROGRAM}", f"/DIcons={BUILD / 'icons'}",
                   f"/O{DIST}", str(HERE / "windows" / "hearth.iss")]  # fmt: skip
        run(command, "Inno Setup failed.", "read its output above, then run it again.")
    return DIST / f"hearth-{number}-windows-x86_64.exe"


def write_sums(files: Sequence[Path]) -> Path:
    """SHA256SUMS beside the files, as sha256sum checks it."""
    lines = [f"{sha256(path)}  {path.name}\n" for path in files]
    sums = DIST / "SHA256SUMS"
    sums.write_text("".join(lines), encoding="utf-8", newline="\n")
    return sums


def sha256(path: Path) -> str:
    """The sum of a file, read once."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def version() -> str:
    """Hearth's version, as pyproject.toml has it."""
    found = re.search(r'^version = "([^"]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    if found is None:
        raise BuildError("pyproject.toml names no version.", "put it back: `git checkout pyproject.toml`.")
    return found.group(1)


def size_of(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def run(command: Sequence[str], what: str, act: str, environment: dict[str, str] | None = None) -> None:
    """Run to its end, its output on stderr. Raises: BuildError with `what` and `act`."""
    done = subprocess.run(command, stdout=sys.stderr, env=environment, cwd=ROOT, check=False)
    if done.returncode != 0:
        raise BuildError(what, act)


if __name__ == "__main__":
    sys.exit(main())
