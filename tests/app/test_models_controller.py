"""What a person does with models, against a stand-in for the library, without a window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_library import FakeLibrary
from PySide6.QtCore import QObject, Signal
from pytestqt.qtbot import QtBot

from app.engine_status import EngineStatus, Phase
from app.model_choices import ModelChoices
from app.models_controller import ModelsController
from app.user_messages import UserMessage


class FakeChat(QObject):
    """What of the chat controller the models need."""

    status_changed = Signal(EngineStatus)
    model_changed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.model = "starter-chat"
        self.status = EngineStatus(phase=Phase.READY)
        self.did: list[str] = []

    def show(self, phase: Phase) -> None:
        self.status = EngineStatus(phase=phase)
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


class Room:
    """A controller with its stand-ins, and everything it said."""

    def __init__(self, qtbot: QtBot, pace_ms: int = 1, **options: Any) -> None:
        self.qtbot = qtbot
        self.library, self.chat = FakeLibrary(pace_ms), FakeChat()
        self.saved: list[dict[str, Any]] = []
        self.controller = ModelsController(self.library, self.chat, ModelChoices(), self.saved.append, **options)
        self.problems: list[UserMessage] = []
        self.toasts: list[tuple[str, Any]] = []
        self.said: list[tuple[Any, ...]] = []
        c = self.controller
        c.problem.connect(self.problems.append)
        c.toast.connect(lambda words, undo: self.toasts.append((words, undo)))
        for signal in (c.searched, c.looked, c.previewed, c.planned, c.offer_changed, c.token_state):
            signal.connect(lambda *values: self.said.append(values))

    def open(self) -> Room:
        self.controller.open_page()
        self.wait(lambda: self.controller.row("bamboo-dpo-7b") and not self.controller.is_loading)
        return self

    def wait(self, condition: Callable[[], object]) -> None:
        self.qtbot.waitUntil(lambda: bool(condition()), timeout=10_000)

    def row(self, row_id: str) -> Any:
        return self.controller.row(row_id)


@pytest.fixture
def room(qtbot: QtBot) -> Iterator[Callable[..., Room]]:
    rooms: list[Room] = []

    def make(**options: Any) -> Room:
        rooms.append(Room(qtbot, **options))
        return rooms[-1]

    yield make
    for one in rooms:
        one.library.close()


def test_the_page_asks_for_everything_and_shows_it(room: Callable[..., Room]) -> None:
    here = room().open()
    assert {job for job, _ in here.library.asked} >= {"catalogue", "library", "downloads"}
    here.wait(lambda: here.row("hearth/starter-chat").estimate)
    assert here.row("hearth/starter-chat").verdict == "In use"
    assert here.controller.machine == here.library.machine


def test_a_download_runs_and_its_model_is_prepared_and_used(room: Callable[..., Room]) -> None:
    here = room().open()
    here.controller.download("bamboo-dpo-7b")
    here.wait(lambda: here.row("bamboo-dpo-7b").download)
    here.wait(lambda: here.row("bamboo-dpo-7b").installed)
    assert here.row("bamboo-dpo-7b").verdict == "GPU + CPU"
    here.controller.plan("bamboo-dpo-7b")
    here.wait(lambda: any(values[0] == "bamboo-dpo-7b" for values in here.said))
    here.controller.prepare("bamboo-dpo-7b", "sign")
    assert here.row("bamboo-dpo-7b").verdict == "Preparing"
    here.wait(lambda: here.row("bamboo-dpo-7b").verdict == "Ready")
    assert here.toasts[-1][0] == "Bamboo DPO 7B is prepared for this PC"
    here.controller.use("bamboo-dpo-7b")
    assert here.chat.model == "PowerInfer/bamboo-dpo-7b"
    assert here.row("bamboo-dpo-7b").verdict == "Loading"
    here.chat.show(Phase.READY)
    assert here.row("bamboo-dpo-7b").verdict == "In use"
