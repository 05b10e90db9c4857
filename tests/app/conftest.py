"""Controllers and windows for a test, closed at its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from socketserver import BaseServer
from typing import Any

import pytest
from desk import Desk, MakeDesk
from patient_bot import PatientBot
from person import Arrive, Person
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from samples.tiny_model import make_tiny_gguf
from support.systems import ON_WINDOWS

from app.diagrams import process
from app.documents.reading.reader import DocumentReader, _end
from app.settings import AppSettings
from app.ui.look import theme
from app.ui.transcript import message_builder


def as_before() -> Iterator[None]:
    """The theme and the size of the type are put back, so that no test sees what another left."""
    before = theme.current().choice, theme.current().zoom
    yield
    app = QApplication.instance()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)  # else the next tests style them too
    if isinstance(app, QApplication) and (theme.current().choice, theme.current().zoom) != before:
        theme.apply(app, *before)


look_as_before_a_module = pytest.fixture(as_before, scope="module", autouse=True)
look_as_before = pytest.fixture(as_before, autouse=True)


@pytest.fixture(scope="module", autouse=True)
def no_process_for_diagrams_afterwards() -> Iterator[None]:
    """Later tests look at the processes that they start."""
    yield
    process.end()


SHORT_MS = {
    "chat.chat_memory.SAVE_EVERY_MS": 40, "chat.context_count.AFTER_MS": 20, "documents.documents.TELL_EVERY_MS": 10,
    "models.model_switch.TYPING_MS": 60, "servers.client_loads.LOOK_MS": 30, "ui.live.live_page.SHOW_MS": 30,
    "ui.transcript.message_buttons.COPIED_MS": 30, "ui.transcript.text.code_block.COPIED_MS": 30,
    "ui.transcript.text_find.GROW_MS": 30,
}  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def short_pauses() -> Iterator[None]:
    """Shorten the pauses that spare a person or the disk: the tests waited for a minute in all."""
    with pytest.MonkeyPatch.context() as patch:
        for name, ms in SHORT_MS.items():
            patch.setattr(f"app.{name}", ms)
        patch.setattr(BaseServer.serve_forever, "__defaults__", (0.01,))  # of pages for the browser
        yield


@pytest.fixture(scope="module", autouse=True)
def kept_reading_processes() -> Iterator[None]:
    """Hand the process of a closed reader of documents to the next one: to start one takes 0.1 s."""
    kept: list[Any] = []
    started, end = DocumentReader._started, DocumentReader.close

    def start(reader: DocumentReader, name: str) -> Any:
        if reader._process is None and kept:
            reader._process, reader._n_files = kept.pop(), 0
        return started(reader, name)

    def close(reader: DocumentReader) -> None:
        if reader._process is None or reader._turn.locked():  # else a reading would not be cancelled
            end(reader)
        else:
            kept.append(reader._process)
            reader._process = None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DocumentReader, "_started", start)
        patch.setattr(DocumentReader, "close", close)
        yield
    for one in kept:
        _end(one)


@pytest.fixture(autouse=True)
def view_filled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine builds the messages in view in one go too; the rest follows in slices."""
    monkeypatch.setattr(message_builder, "AT_ONCE_S", 60.0)


@pytest.fixture(scope="session")
def large_gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A model of some 30 MB, which a download can be cut short in behind its first block of 8 MB."""
    path = make_tiny_gguf(tmp_path_factory.mktemp("large") / "tiny.gguf", d_model=256, d_ff=9216, n_layers=4)
    data = path.read_bytes()
    assert len(data) > 24 << 20
    return data


@pytest.fixture(scope="session")
def qapp(qapp: QApplication) -> QApplication:
    """Qt's offscreen platform has no font on Windows, and PDF files without one contain no text."""
    if ON_WINDOWS:
        theme.load_fonts("upright")
    qapp.setDoubleClickInterval(100)  # tests that click twice wait for longer than that
    return qapp


@pytest.fixture
def qtbot(qapp: QApplication, request: pytest.FixtureRequest) -> QtBot:
    return PatientBot(request)


@pytest.fixture
def make_desk(qtbot: QtBot, tmp_path: Path) -> Iterator[MakeDesk]:
    desks: list[Desk] = []

    def make(**options: Any) -> Desk:
        desks.append(Desk(qtbot, options.pop("folder", tmp_path), **options))
        return desks[-1]

    yield make
    for desk in desks:
        desk.close()


@pytest.fixture
def arrive(qtbot: QtBot, tmp_path: Path) -> Iterator[Arrive]:
    people: list[Person] = []

    def make(
        location: str = "process",
        model: str = "fake",
        settings: AppSettings | None = None,
        folder: Path = tmp_path,
        library: Any = None,
    ) -> Person:
        people.append(Person(qtbot, folder, location, model, settings or AppSettings(), library))
        return people[-1]

    yield make
    for person in people:
        person.leave()
        person.window.deleteLater()
