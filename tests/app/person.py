"""Someone in front of the real window, with the real engine or a fake for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_host import FakeEngine
from fake_library import FakeLibrary
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.chat.store.conversation import Message
from app.chat.store.store import Store
from app.clients.engine_process import ProcessHost, Timeouts
from app.clients.engine_status import Phase
from app.clients.engine_worker import InThreadHost
from app.settings import AppSettings
from app.startup.bootstrap import folders_in
from app.startup.hearth import Hearth
from app.ui.look import theme

FAKE = [sys.executable, str(Path(__file__).with_name("fake_host.py"))]


class Person:
    """Someone in front of the window: types, clicks, looks."""

    def __init__(
        self, qtbot: QtBot, folder: Path, location: str, model: str, settings: AppSettings, library: Any = None
    ) -> None:
        """library: the library's client instead of a fake for it; "real" for the real one."""
        self.qtbot = qtbot
        self.places = folders_in(folder)
        self.places.log.mkdir(parents=True, exist_ok=True)
        makers: Any = {
            "process": lambda emit: ProcessHost(emit, self.places.log, FAKE, Timeouts(backoff_s=(0.01,))),
            "in-thread": lambda emit: InThreadHost(emit, FakeEngine),  # type: ignore[arg-type]
        }
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        theme.apply(app, "light", 1.0)
        fake = model.startswith("fake")
        self.library = FakeLibrary() if library is None else None if library == "real" else library
        self.hearth = Hearth(
            self.places, settings, location, model if fake else None, makers if fake else None, self.library
        )
        self.window, self.page = self.hearth.window, self.hearth.window.page
        self.finished: list[Message] = []
        self.pids: list[int] = []
        self.hearth.controller.message_finished.connect(self.finished.append)
        self.hearth.engine.process_started.connect(self.pids.append)
        self.window.resize(1280, 832)
        painted: list[bool] = []  # waitSignal would disconnect while the worker connects: PySide can deadlock there
        self.hearth.painted.connect(lambda: painted.append(True))
        self.hearth.show()
        self.wait(lambda: painted)

    def wait(self, condition: Callable[[], object]) -> None:
        self.qtbot.waitUntil(lambda: bool(condition()))

    def wait_ready(self) -> None:
        """Until the model can answer and the chats are read."""
        self.wait(lambda: self.page.composer._status.phase is Phase.READY and self.hearth.memory.is_sound is not None)

    def type(self, text: str) -> None:
        self.qtbot.keyClicks(self.page.composer.field, text)

    def press(self, key: Qt.Key, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        self.qtbot.keyClick(self.page.composer.field, key, modifier)

    def send(self, text: str) -> None:
        self.type(text)
        self.press(Qt.Key.Key_Return)

    def ask(self, text: str) -> Message:
        """Send, and wait for the end of the answer."""
        before = len(self.finished)
        self.send(text)
        self.wait(lambda: len(self.finished) > before)
        self.wait_ready()
        return self.finished[-1]

    @property
    def shown(self) -> list[Message]:
        self.page.transcript.flush()
        return self.page.transcript.messages

    def last_text(self) -> str:
        """The text of the last answer as its widget has it."""
        self.page.transcript.flush()
        views = self.page.transcript.views
        view: Any = views[-1] if views else None
        if view is None:
            return ""
        return view._parser.text if getattr(view, "is_writing", False) else view.message.text

    def writing(self, words: str) -> Callable[[], bool]:
        return lambda: words in self.last_text()

    def saved(self) -> list[Message]:
        """What the file holds once everything is saved."""
        self.wait(lambda: self.hearth.saves.waiting() == [])
        return self.stored()

    def stored(self) -> list[Message]:
        """What the file holds now."""
        store = Store.open(self.places.chats_file)
        messages = [m for c in reversed(store.conversations()) for m in store.messages(c.id)]
        store.close()
        return messages

    def leave(self) -> None:
        self.window.close()
        close(self.hearth)
        assert not self.hearth.worker._thread.isRunning()


def close(hearth: Hearth) -> None:
    """End it, however slow the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.startup.hearth.THREADS_END_WITHIN_S", 60.0)
        assert hearth.close(), "every thread ended"


Arrive = Callable[..., Person]
