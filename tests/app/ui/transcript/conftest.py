"""An empty transcript."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.ui.look import theme
from app.ui.transcript.transcript import Transcript


@pytest.fixture
def transcript(qtbot: QtBot, qapp: QApplication) -> Transcript:
    if (theme.current().choice, theme.current().zoom) != ("light", 1.0):
        theme.apply(qapp, "light", 1.0)
    out = Transcript()
    out.resize(900, 600)
    qtbot.addWidget(out)
    out.show()
    return out
