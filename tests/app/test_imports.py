"""What the window's process loads before it is painted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "numpy", "numba", "scipy", "huggingface_hub", "tokenizers", "gguf", "jinja2", "safetensors", "pynvml",
         "ziamath", "latex2mathml", "mcp", "merman")  # fmt: skip


def loaded_by(code: str) -> set[str]:
    """Top-level names of everything that a fresh interpreter has loaded after running the code."""
    script = f"{code}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_window_loads_nothing_heavy() -> None:
    loaded = loaded_by("import app.startup.bootstrap, app.ui.main_window")
    assert "PySide6" in loaded
    assert not loaded & set(HEAVY)


def test_the_window_loads_no_printing_and_no_web_server() -> None:
    script = (
        "import app.startup.bootstrap, app.ui.main_window, sys\n"
        "print(*{'PySide6.QtPrintSupport', 'http.server', 'app.ui.printing.export_actions'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_reading_the_flags_loads_no_qt() -> None:
    assert "PySide6" not in loaded_by("import app.__main__, app.startup.terminal")
