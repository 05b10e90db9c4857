"""The context menu of fields and selectable labels, and the scrim behind a dialog."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QContextMenuEvent, QGuiApplication
from PySide6.QtWidgets import QApplication, QLabel, QLineEdit, QMenu, QPlainTextEdit, QTextEdit, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from app.ui.widgets.field_menu import FieldMenus, menu_of
from app.ui.widgets.floating import DimWhileBlocked, Menu, Scrim, confirm

pytestmark = pytest.mark.gui


@pytest.fixture
def window(qtbot: QtBot) -> QWidget:
    out = QWidget()
    QVBoxLayout(out)
    qtbot.addWidget(out)
    out.resize(500, 400)
    out.show()
    out.activateWindow()
    return out


def rows(menu: QMenu | None) -> dict[str, bool]:
    assert menu is not None
    return {row.text().split("\t")[0]: row.isEnabled() for row in menu.actions() if not row.isSeparator()}


def row(menu: QMenu | None, words: str) -> None:
    assert menu is not None
    next(action for action in menu.actions() if action.text().startswith(words)).trigger()


@pytest.mark.parametrize("kind", [QLineEdit, QTextEdit, QPlainTextEdit])
def test_a_field_offers_what_can_be_done_with_its_text(window: QWidget, kind: type[QLineEdit]) -> None:
    field = kind()
    window.layout().addWidget(field)
    QGuiApplication.clipboard().setText("moor")
    assert rows(menu_of(field)) == {
        "Undo": False, "Redo": False, "Cut": False, "Copy": False, "Paste": True, "Select all": False}  # fmt: skip
    row(menu_of(field), "Paste")
    row(menu_of(field), "Select all")
    assert rows(menu_of(field))["Cut"]
    row(menu_of(field), "Cut")
    row(menu_of(field), "Undo")
    assert (field.text() if isinstance(field, QLineEdit) else field.toPlainText()) == "moor"
    field.setReadOnly(True)
    assert list(rows(menu_of(field))) == ["Copy", "Select all"]


def test_a_key_is_not_copied_from_its_field(window: QWidget) -> None:
    field = QLineEdit("secret")
    field.setEchoMode(QLineEdit.EchoMode.Password)
    field.selectAll()
    shown = rows(menu_of(field))
    assert (shown["Cut"], shown["Copy"]) == (False, False)


def test_a_label_offers_to_copy_where_its_text_can_be_selected(window: QWidget) -> None:
    label = QLabel("a path")
    assert menu_of(label) is None
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    row(menu_of(label), "Select all")
    row(menu_of(label), "Copy")
    assert QGuiApplication.clipboard().text() == "a path"


def test_the_menu_of_what_has_the_focus_is_ours(window: QWidget, qtbot: QtBot) -> None:
    menus, field = FieldMenus(window), QTextEdit()
    window.layout().addWidget(field)
    QApplication.processEvents()
    menus._focus_moved(None, field)  # what the application says when the focus moves
    at = field.viewport().mapToGlobal(QPoint(5, 5))
    QApplication.sendEvent(field.viewport(), QContextMenuEvent(QContextMenuEvent.Reason.Mouse, QPoint(5, 5), at))
    popup = QApplication.activePopupWidget()
    assert isinstance(popup, Menu)
    popup.close()


def test_a_window_is_dimmed_while_a_dialog_is_in_front_of_it(window: QWidget, qtbot: QtBot) -> None:
    DimWhileBlocked(window)
    dialog = confirm(window, "Stop?", "It is not finished.", "Keep", "Stop", lambda: None)
    QApplication.sendEvent(window, QEvent(QEvent.Type.WindowBlocked))
    scrim = window.findChild(Scrim)
    assert scrim is not None
    assert scrim.geometry() == window.rect()
    window.resize(600, 500)
    QApplication.processEvents()
    assert scrim.geometry() == window.rect()
    dialog.reject()
    QApplication.sendEvent(window, QEvent(QEvent.Type.WindowUnblocked))
    assert not scrim.isVisible()
