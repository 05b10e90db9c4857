"""What the window's process loads before it is painted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "numpy", "numba", "scipy", "huggingface_hub", "tokenizers", "gguf", "jinja2", "safetensors", "pynvml",
         "ziamath", "latex2mathml", "mcp", "merman", "psutil", "markdown_it", "asyncio", "concurrent", "ssl", "email",
         "http", "xml", "statistics", "sqlite3", "subprocess", "decimal", "difflib", "uuid", "locale",
         "platform")  # fmt: skip
LATER = ("PySide6.QtPrintSupport", "app.chat.store.chat_files", "app.chat.store.store", "app.clients.live_figures",
         "app.diagrams.process", "app.documents.attachment_texts", "app.startup.all_tools",
         "app.ui.models.placement_popup", "app.ui.printing.export_actions", "app.ui.transcript.answer_view",
         "app.ui.transcript.own_message", "engine.library.records", "engine.service.protocol")  # fmt: skip
FIRST_PAINT = """
from pathlib import Path
from PySide6.QtWidgets import QApplication
from app.settings import AppSettings
from app.startup.bootstrap import Hearth, apply_look, folders_in
app, settings = QApplication([]), AppSettings(theme="light")
apply_look(settings)
hearth = Hearth(folders_in(Path({folder!r})), settings)
hearth.painted.connect(lambda: print(*{{name.split(".")[0] for name in sys.modules}}, *sys.modules, flush=True))
hearth.painted.connect(lambda: os._exit(0))
hearth.show()
app.exec()
"""


def loaded_by(code: str) -> set[str]:
    """Top-level names of everything that a fresh interpreter has loaded after running the code."""
    script = f"{code}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_first_paint_needs_nothing_heavy(tmp_path: Path) -> None:
    loaded = loaded_by("import os, sys\n" + FIRST_PAINT.format(folder=str(tmp_path)))
    assert "PySide6" in loaded
    assert not loaded & {*HEAVY, *LATER}


def test_reading_the_flags_loads_no_qt() -> None:
    assert "PySide6" not in loaded_by("import app.__main__, app.startup.terminal")
