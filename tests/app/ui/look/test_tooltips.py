"""Tooltips show the names of chats, files and models as they are: no markup in them is followed."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QToolTip
from pytestqt.qtbot import QtBot

from app.ui.look import theme


@pytest.mark.gui
def test_a_tooltip_is_plain_text(qtbot: QtBot, qapp: QApplication) -> None:
    before = qapp.styleSheet()
    qapp.setStyleSheet(theme.qss())
    try:
        button = QPushButton()
        qtbot.addWidget(button)
        button.show()
        QToolTip.showText(QPoint(5, 5), "Show x<img src='//192.0.2.1/share/y.png'>", button)
        (tip,) = [one for one in qapp.topLevelWidgets() if one.metaObject().className() == "QTipLabel"]
        assert isinstance(tip, QLabel)
        assert tip.textFormat() is Qt.TextFormat.PlainText
        QToolTip.hideText()
    finally:
        qapp.setStyleSheet(before)
