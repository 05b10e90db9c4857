"""The Models page with its controller, a fake for the library and one for the chat, in the real window."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_library import FakeLibrary
from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QWidget
from pytestqt.qtbot import QtBot

from app.clients.engine_status import EngineStatus, Phase
from app.models.model_choices import ModelChoices
from app.models.models_controller import ModelsController
from app.settings import AppSettings
from app.startup.bootstrap import folders_in
from app.ui.look import theme
from app.ui.main_window import MainWindow
from app.ui.models.model_actions import ModelActions
from app.ui.models.model_card import ModelCard


class QuietChat(QObject):
    """What of the chat controller the models need; it loads nothing."""

    status_changed = Signal(EngineStatus)
    model_changed = Signal(str)

    def __init__(self, model: str = "starter-chat") -> None:
        super().__init__()
        self.model, self.status = model, EngineStatus(phase=Phase.READY)
        self.did: list[str] = []

    def show(self, phase: Phase, **values: Any) -> None:
        self.status = EngineStatus(phase=phase, **values)
        self.status_changed.emit(self.status)

    def use_model(self, model: str) -> None:
        self.model = model
        self.did.append(f"use {model}")
        self.show(Phase.LOADING)

    def unload(self) -> None:
        self.did.append("unload")
        self.show(Phase.OFF)

    def cancel_load(self) -> None:
        self.did.append("cancel")
        self.show(Phase.OFF)

    def load_model(self) -> None:
        self.did.append("load")

    def choose_draft(self, draft: str) -> None:
        self.did.append(f"draft {draft}")


class ModelsRoom:
    """The page in its window, and the hands of a person on it."""

    def __init__(self, qtbot: QtBot, folder: Path, library: FakeLibrary | None = None, model: str = "") -> None:
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        theme.apply(app, "light", 1.0)
        self.qtbot = qtbot
        self.library, self.chat = library or FakeLibrary(0), QuietChat(model or "starter-chat")
        self.controller = ModelsController(self.library, self.chat, ModelChoices())
        self.window = MainWindow(AppSettings(theme="light"), folders_in(folder))
        self.window.connect_models_page(self.controller)
        self.chat.status_changed.connect(self.window._show_status)
        self.window._show_status(self.chat.status)
        self.window.resize(1280, 832)
        self.window.show()
        self.window.show_models()
        page = self.window.pages.models_page
        assert page is not None
        self.page = page

    @property
    def actions(self) -> ModelActions:
        assert self.window.pages.model_actions is not None
        return self.window.pages.model_actions

    def wait(self, condition: Callable[[], object]) -> None:
        self.qtbot.waitUntil(lambda: bool(condition()))

    def settle(self) -> None:
        """Until everything is there that was asked for."""
        self.wait(lambda: not self.controller.is_loading and self.page.rows)
        QTest.qWait(80)

    def card(self, row_id: str) -> ModelCard:
        return self.page.cards[row_id]

    def shown(self) -> list[str]:
        """The ids of the cards in view, in order."""
        return [card.row.id for card in self.page.grid.cards if isinstance(card, ModelCard)]

    def press(self, row_id: str, act: str) -> None:
        """A click on a button of a card."""
        QTest.mouseClick(self.card(row_id).buttons[act], Qt.MouseButton.LeftButton)
        QTest.qWait(60)

    def dialog(self, kind: type[QDialog] = QDialog) -> Any:
        """The dialog that is open."""
        found = [w for w in QApplication.topLevelWidgets() if isinstance(w, kind) and w.isVisible()]
        return found[-1] if found else None

    def search(self, text: str) -> None:
        self.page.search.setText(text)
        if text:
            QTest.keyClick(self.page.search, Qt.Key.Key_Return)
        QTest.qWait(10)

    def close(self) -> None:
        for widget in QApplication.topLevelWidgets():
            if isinstance(widget, QDialog):
                widget.close()
        self.window.close()
        self.window.deleteLater()
        self.controller.close()  # no timer of it may end after it is gone
        self.controller.deleteLater()
        self.library.deleteLater()
        self.chat.deleteLater()
        QTest.qWait(1)


def names(root: QWidget) -> list[str]:
    """What takes the keyboard's focus below a widget without having a name."""
    return [
        repr(widget)
        for widget in root.findChildren(QWidget)
        if widget.isVisible()
        and widget.focusPolicy() & Qt.FocusPolicy.TabFocus
        and not (widget.accessibleName() or getattr(widget, "text", lambda: "")())
        and type(widget).__name__ != "QScrollBar"
    ]
