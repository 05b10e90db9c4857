"""Lists what the built program contains and leaves out: packages, our own files, and unused parts.

It looks only; installer/hearth.spec hands what it says to PyInstaller.
"""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from packaging.utils import canonicalize_name

from app.third_party import PROJECT, needed_distributions

PACKAGES = ("app", "engine", "native_kernels")
PACKAGES_WITH_DATA = ("ziamath", "latex2mathml")  # the font of formulas, and the table of symbols
ASSETS = "engine/_assets"  # where engine/assets.py looks for them

# Imported by a package for its own tests, builds or other uses, never by Hearth.
UNUSED_MODULES = (
    "tkinter", "idlelib", "lib2to3", "pydoc_data", "ensurepip", "turtledemo",
    "setuptools", "pkg_resources", "_distutils_hack",
    "numba.tests", "numba.cuda", "matplotlib.tests", "scipy.datasets",
    "torch._inductor", "torch._dynamo", "torch.onnx", "torch.utils.tensorboard", "torch.utils.benchmark",
    "torch.utils.cpp_extension", "sympy", "isympy", "mpmath", "networkx",  # of torch.compile, which is not used
    "hf_xet",  # downloads go over HTTP alone: engine/library/hub/hub.py switches it off
    "PySide6.QtQml", "PySide6.QtQuick", "PySide6.QtOpenGL", "PySide6.QtTest", "PySide6.QtDBus",
)  # fmt: skip

# Imported from C or by name alone, so that no import of them is seen.
UNSEEN_MODULES = (
    "numba._devicearray", "uvicorn.lifespan.off", "uvicorn.protocols.http.h11_impl",
    "opentelemetry.context.contextvars_context",  # of the MCP SDK
)  # fmt: skip

# Files, by where they would be in the program; those of the system are any desktop's own.
UNUSED_FILES = (
    "*.dist-info/direct_url.json", "*/tests/*", "*/test/*.py", "*/testing/data/*",
    "torch/bin/test_*", "torch/bin/*Test", "torch/bin/protoc*", "torch/include/*", "torch/test/*", "torch/share/*",
    "torch/lib/*.lib",
    "torch/lib/libtorchbind_test*", "torch/lib/libjitbackend_test*", "torch/lib/libbackend_with_compiler*",
    "torch/lib/libaoti_custom_ops*",
    "nvidia/*.alt.*", "nvidia/*/include/*",  # a second NVRTC that trades memory for speed
    "matplotlib/mpl-data/sample_data/*", "matplotlib/mpl-data/fonts/afm/*", "matplotlib/mpl-data/fonts/pdfcorefonts/*",
    "PySide6/*/qmltooling/*", "PySide6/*/generic/*", "PySide6/*/egldeviceintegrations/*",
    "PySide6/*/platforms/libqeglfs*", "PySide6/*/platforms/libqlinuxfb*", "PySide6/*/platforms/libqvkkhr*",
    "PySide6/*/platforms/libqvnc*", "PySide6/*/platforms/libqminimal*", "PySide6/*/platformthemes/libqgtk3*",
    "*libQt6Quick*", "*libQt6Qml*", "*libQt6EglF*",
    "libgtk-3*", "libgdk*", "libatk*", "libcairo*", "libpango*", "libpixman*", "libharfbuzz.so*", "libfribidi*",
    "libthai*", "libdatrie*", "libgraphite2*",  # the theme of GTK brought them
    "libstdc++.so*", "libgcc_s.so*",  # older ones than the graphics driver's would keep it from loading
)  # fmt: skip
_TRANSLATIONS = ("qtbase_de.qm", "qtbase_zh_CN.qm")  # of Qt's own words: the languages that Hearth speaks

Entry = tuple[str, str, str]  # place in the program, source, kind


def own_files(root: Path) -> list[tuple[str, str]]:
    """(file, folder in the program) of everything of ours that is not a Python module."""
    pairs = [(path, Path(ASSETS, path.relative_to(root / "assets").parent)) for path in _files(root / "assets")]
    for package in PACKAGES:
        pairs += [(path, path.relative_to(root).parent) for path in _files(root / package) if path.suffix != ".py"]
    return [(str(path), folder.as_posix()) for path, folder in pairs]


def _files(folder: Path) -> list[Path]:
    left_out = ("__pycache__", "screenshots")
    return sorted(path for path in folder.rglob("*") if path.is_file() and not any(p in left_out for p in path.parts))


def hidden_imports(root: Path) -> list[str]:
    """Every module of ours, some of which are imported by name only, and those of others that are not seen."""
    modules = [*UNSEEN_MODULES]
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            modules.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return [module for module in modules if not module.endswith("__main__") or module == "app.__main__"]


def left_out_modules() -> list[str]:
    """Modules that must not come along: the tests' and the gates' tools, and parts of others that nobody uses."""
    wanted = {*needed_distributions(), PROJECT}
    foreign = [
        module
        for module, names in metadata.packages_distributions().items()
        if module.isidentifier() and not any(canonicalize_name(name) in wanted for name in names)
    ]
    return sorted({*foreign, *UNUSED_MODULES} - {"PyInstaller", "altgraph", "_pyinstaller_hooks_contrib"})


def shipped_distributions(left_out: Iterable[str]) -> list[str]:
    """The packages that come along, Hearth among them: all it needs but those of which every module is left out."""
    modules: dict[str, set[str]] = {}
    for module, names in metadata.packages_distributions().items():
        for name in names:
            modules.setdefault(canonicalize_name(name), set()).add(module)
    gone = set(left_out)
    return [PROJECT, *(name for name in needed_distributions() if not modules.get(name, {""}) <= gone)]


def without_what_need_not_ship(entries: Sequence[Entry]) -> list[Entry]:
    """The entries without what UNUSED_FILES names."""
    return [entry for entry in entries if not is_unused(entry[0])]


def is_unused(place: str) -> bool:
    """Whether a file that would lie at `place` in the program is of no use there."""
    place = place.replace("\\", "/")
    if place.startswith(PACKAGES):
        return False
    if place.startswith("PySide6/") and "/translations/" in place:
        return not place.endswith(_TRANSLATIONS)
    return any(fnmatch.fnmatchcase(place, pattern) for pattern in UNUSED_FILES)


def loaded_libraries() -> list[tuple[str, str]]:
    """(file, folder in the program) of libraries that are loaded by name, where their packages look for them.

    NVRTC (native_kernels/cuda/runtime/nvrtc.py) has no build for macOS, merman none for Linux on ARM.
    """
    files: list[metadata.PackagePath] = []
    for name in ("nvidia-cuda-nvrtc-cu12", "merman"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            files += metadata.files(name) or []
    libraries = [file for file in files if file.suffix in (".dll", ".dylib") or ".so" in file.name]
    return [(str(file.locate()), file.parent.as_posix()) for file in libraries if not is_unused(file.as_posix())]
