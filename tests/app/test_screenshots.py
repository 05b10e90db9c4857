"""Pictures of the real window with the real model, in light and dark.

They go to tests/output, and to assets/screenshots when HEARTH_UPDATE_SCREENSHOTS=1 is set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from person import close
from PySide6.QtGui import QColor, QImage
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.chat.store.conversation import Message, MessageState
from app.clients.engine_status import Phase
from app.settings import AppSettings
from app.startup.bootstrap import folders_in
from app.startup.hearth import Hearth
from app.ui.look import theme
from engine.assets import asset_root, starter_model

pytestmark = [
    pytest.mark.gui,
    pytest.mark.skipif(
        not any(starter_model().glob("*.gguf")), reason="the starter model is not in assets/models/starter-chat"
    ),
]

OUTPUT = Path(__file__).parents[1] / "output"
EARLIER = [
    "What is the capital of Peru?",
    "Tom has 5 apples and gives away 2. How many are left?",
    "Give me a list of three fruits.",
]
CHAT = ["How do I make tea?", "Tell me a story about a small fox."]
KEPT = ("first-run", "chat")  # for the README
FOR_THE_README = os.environ.get("HEARTH_UPDATE_SCREENSHOTS") == "1"  # which shows more chats than the test needs


@pytest.fixture
def hearth(qtbot: QtBot, tmp_path: Path) -> Iterator[Hearth]:
    _dress("light")
    places = folders_in(tmp_path)
    places.log.mkdir(parents=True)
    hearth = Hearth(places, AppSettings(theme="light", temperature=0.0), "process")
    hearth.window.resize(1280, 832)
    with qtbot.waitSignal(hearth.painted):
        hearth.show()
    yield hearth
    hearth.window.close()
    close(hearth)
    hearth.window.deleteLater()


def _dress(choice: theme.Choice) -> None:
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    theme.apply(app, choice, 1.0)


def take(hearth: Hearth, name: str, settled: Callable[[], None]) -> None:
    """A picture in light and in dark."""
    for choice in ("light", "dark"):
        _dress(choice)
        settled()
        image = hearth.window.grab().toImage()
        _save(image, f"{name}-{choice}.png")
        tokens = theme.current().tokens
        assert image.pixelColor(image.width() - 6, 60) == QColor(tokens.page), "the page has its ground"
        assert image.pixelColor(4, 500) == QColor(tokens.side), "the sidebar has its ground"
        drawn = {image.pixel(x, y) for x in range(0, image.width(), 3) for y in range(0, image.height(), 3)}
        assert len(drawn) > 100, "there is something on it"
    _dress("light")


def _save(image: QImage, name: str) -> None:
    OUTPUT.mkdir(exist_ok=True)
    assert image.save(str(OUTPUT / name))
    if FOR_THE_README and name.startswith(KEPT):
        folder = asset_root() / "screenshots"
        folder.mkdir(exist_ok=True)
        assert image.save(str(folder / name))


def test_first_run_and_chat_in_light_and_dark(qtbot: QtBot, hearth: Hearth) -> None:
    page, finished = hearth.window.page, list[Message]()
    hearth.controller.message_finished.connect(finished.append)

    def wait(condition: Callable[[], object]) -> None:
        qtbot.waitUntil(lambda: bool(condition()))

    def settled() -> None:
        page.transcript.flush()
        qtbot.wait(50)

    def ask(text: str) -> None:
        before = len(finished)
        hearth.controller.send(text)
        wait(lambda: len(finished) > before)
        assert finished[-1].state is MessageState.COMPLETE
        assert finished[-1].text.strip()

    wait(lambda: hearth.engine.status.phase is Phase.READY and page.empty._machine.text())
    qtbot.waitSignal(hearth.monitor.sampled).wait()
    take(hearth, "first-run", settled)
    for question in EARLIER if FOR_THE_README else ():
        hearth.controller.new_chat()
        ask(question)
    hearth.controller.new_chat()
    for question in CHAT if FOR_THE_README else CHAT[:1]:
        ask(question)
    wait(lambda: hearth.engine.is_ready)
    take(hearth, "chat", settled)
    hearth.window.resize(900, 600)
    take(hearth, "narrow", settled)
