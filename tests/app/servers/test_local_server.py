"""The switch for the server on this PC: what the engine is told, the key, and what is shown of it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_library import FakeLibrary
from PySide6.QtCore import QObject, QPoint, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from support.shown_text import numbers_in

from app.clients.engine_client import EngineClient
from app.clients.engine_status import EngineStatus, Phase
from app.clients.engine_worker import EngineWorker, default_makers
from app.models.model_switch import STARTER
from app.servers.local_server import LocalServer
from app.settings import AppSettings
from app.ui.settings.local_server_rows import HIDDEN, LocalServerRows, clients_text, state_text
from app.ui.settings.settings_dialog import SettingsDialog
from engine.errors import RemoteKeyError, RemoteUnreachableError
from engine.remote_servers.client import RemoteServer
from engine.service import protocol
from engine.service.protocol import ServerState

CHAT = {"role": "user", "content": "Hello?"}

ON = AppSettings(serve=True, serve_port=8999)


class Engine(QObject):
    """What of the engine is needed, and what it was told."""

    process_started = Signal(int)
    status_changed = Signal(EngineStatus)
    served = Signal(object)
    serve_failed = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.status = EngineStatus(Phase.STARTING)
        self.told: list[tuple[bool, int, str]] = []
        self.loading: list[tuple[bool, float | None]] = []

    def serve(self, on: bool, port: int, key: str, loads: bool, unload_after_s: float | None) -> None:
        self.told.append((on, port, key))
        self.loading.append((loads, unload_after_s))

    def come_up(self, phase: Phase = Phase.READY) -> None:
        self.status = EngineStatus(phase)
        self.status_changed.emit(self.status)


Make = Callable[..., tuple[LocalServer, Engine, FakeLibrary]]


@pytest.fixture
def make(qtbot: QtBot) -> Make:
    kept: list[Any] = []

    def made(settings: AppSettings, key: str = "") -> tuple[LocalServer, Engine, FakeLibrary]:
        engine, library = Engine(), FakeLibrary()
        library.own_key = key
        kept.extend((engine, library))
        return LocalServer(engine, library, settings), engine, library  # type: ignore[arg-type]

    return made


def test_switched_off_nothing_is_asked_of_anybody(make: Make, qtbot: QtBot) -> None:
    server, engine, library = make(AppSettings())
    engine.process_started.emit(7)
    engine.come_up()
    assert (engine.told, library.asked, server.key) == ([], [], "")
    assert AppSettings().serve is False
    dialog = SettingsDialog(AppSettings())
    qtbot.addWidget(dialog)
    dialog.add_local_server(server)
    assert library.asked == [], "looking at the settings asks no keyring"


def test_the_rows_stay_where_they_are_when_the_server_is_switched(make: Make, qtbot: QtBot) -> None:
    server, engine, _ = make(AppSettings(), key="k")
    dialog = SettingsDialog(AppSettings(), notes={"serve": state_text(server)})
    qtbot.addWidget(dialog)
    dialog.add_local_server(server)
    dialog.show()
    rows: LocalServerRows = dialog._local_server
    QApplication.processEvents()
    before, before_text = rows.key.mapTo(dialog, QPoint(0, 0)), state_text(server)
    engine.come_up()
    server.take_settings(ON)
    dialog.show_model({}, {"serve": state_text(server)})
    QApplication.processEvents()
    assert state_text(server) != before_text
    assert rows.key.mapTo(dialog, QPoint(0, 0)) == before
    server._take(ServerState(on=True, address="http://127.0.0.1:1", model="Pip"))
    dialog.show_model({}, {"serve": state_text(server)})
    QApplication.processEvents()
    assert rows.key.mapTo(dialog, QPoint(0, 0)) == before


def test_every_new_engine_is_told_once_it_has_come_up(make: Make, qtbot: QtBot) -> None:
    server, engine, _ = make(ON, "hearth-kept")
    engine.process_started.emit(7)
    assert engine.told == [], "the first answer of a start goes first"
    engine.come_up()
    qtbot.waitUntil(lambda: engine.told == [(True, 8999, "hearth-kept")])
    engine.served.emit(ServerState(True, "http://127.0.0.1:8999/v1", "Pip"))
    engine.come_up()
    assert len(engine.told) == 1
    engine.status = EngineStatus(Phase.RESTARTING)
    engine.process_started.emit(8)
    assert not server.state.on
    engine.come_up(Phase.FAILED)
    assert engine.told[1:] == [(True, 8999, "hearth-kept")]


def test_a_key_is_made_where_there_is_none_and_kept(make: Make, qtbot: QtBot) -> None:
    server, engine, library = make(ON)
    engine.come_up()
    qtbot.waitUntil(lambda: bool(engine.told))
    assert server.key.startswith("hearth-")
    qtbot.waitUntil(lambda: library.own_key == server.key)
    before = server.key
    server.renew_key()
    assert server.key != before
    assert engine.told[-1] == (True, 8999, server.key)


def test_off_again_and_another_port(make: Make, qtbot: QtBot) -> None:
    server, engine, _ = make(ON, "hearth-kept")
    engine.come_up()
    qtbot.waitUntil(lambda: bool(engine.told))
    engine.served.emit(ServerState(True, "http://127.0.0.1:8999/v1"))
    server.take_settings(replace(ON, serve_port=9000))
    assert engine.told[-1] == (True, 9000, "hearth-kept")
    server.take_settings(replace(ON, serve=False))
    assert engine.told[-1][0] is False
    engine.served.emit(ServerState())
    assert "9000" not in state_text(server)  # nothing is said to be served


def test_how_models_are_loaded_is_told_at_once(make: Make, qtbot: QtBot) -> None:
    server, engine, _ = make(ON, "hearth-kept")
    engine.come_up()
    qtbot.waitUntil(lambda: bool(engine.told))
    engine.served.emit(ServerState(True, "http://127.0.0.1:8999/v1"))
    refusing = state_text(server)
    for how in ((True, None), (True, 10), (False, 10)):
        server.take_settings(replace(ON, serve_loads=how[0], serve_unload_min=how[1]))
        assert (state_text(server) == refusing) is not how[0]
    assert engine.loading == [(False, None), (True, None), (True, 600.0), (False, None)]


def test_what_was_switched_off_while_it_came_up_goes_off(make: Make, qtbot: QtBot) -> None:
    server, engine, _ = make(ON, "hearth-kept")
    engine.come_up()
    qtbot.waitUntil(lambda: bool(engine.told))
    server.take_settings(AppSettings())
    engine.served.emit(ServerState(True, "http://127.0.0.1:8999/v1"))
    assert engine.told[-1][0] is False


def test_a_port_that_is_taken_is_told(make: Make, qtbot: QtBot) -> None:
    server, engine, _ = make(ON, "hearth-kept")
    engine.come_up()
    qtbot.waitUntil(lambda: bool(engine.told))
    engine.serve_failed.emit(
        protocol.Failed("s", "ServerError", "Port 8999 is taken by another program.", "Choose another port.")
    )
    assert "8999" in state_text(server)
    server.take_settings(replace(ON, serve_port=9000))
    assert server.trouble is None


def test_the_settings_show_address_key_and_who_talks(make: Make, qtbot: QtBot) -> None:
    server, engine, _ = make(ON, "hearth-kept")
    engine.come_up()
    qtbot.waitUntil(lambda: bool(engine.told))
    talking = [{"client": "openai-python", "what": "chat", "state": "answering", "tokens": 12}]
    engine.served.emit(ServerState(True, "http://127.0.0.1:8999/v1", "Pip", 1, 0, 3, 2, "", talking))
    dialog = SettingsDialog(ON)
    qtbot.addWidget(dialog)
    dialog.add_local_server(server)
    rows: LocalServerRows = dialog._local_server
    assert rows.address.value.words == "http://127.0.0.1:8999/v1"
    assert rows.key.value.words == HIDDEN, "shown when it is asked for"
    assert rows.talking.value.words.startswith("openai-python")
    assert numbers_in(rows.talking.value.words) == ["12"]
    rows.key.copy.click()
    assert rows.key.copy.text() == "Copied"
    assert QGuiApplication.clipboard().text() == "hearth-kept"
    rows.eye.click()
    assert rows.key.value.words == "hearth-kept"
    assert "Pip" in state_text(server)
    assert numbers_in(state_text(server)) == ["2"], "requests that were refused"
    engine.served.emit(ServerState(True, "http://127.0.0.1:8999/v1", "", 0, 0, 4))
    assert numbers_in(clients_text(server.state)) == ["4"]
    assert "Pip" not in state_text(server)
    dialog.search.setText("api key")
    assert not rows.key.isHidden()


@pytest.mark.slow
def test_the_engines_process_serves_what_is_loaded(qtbot: QtBot, tmp_path: Path) -> None:
    """The real engine in a process of its own, asked by a program with the key, and by one without."""
    worker = EngineWorker("process", default_makers(tmp_path))
    engine = EngineClient(worker)
    server = LocalServer(engine, FakeLibrary(), AppSettings(serve=True, serve_port=_free_port()))
    worker.start()
    engine.load(STARTER, {"device": "cpu"})
    try:
        qtbot.waitUntil(lambda: server.state.on and bool(server.state.model), timeout=120_000)
        models = RemoteServer(server.state.address, "Own", server.key).models()
        said = RemoteServer(server.state.address, "Own", server.key).answer(models[0], [CHAT], {"max_tokens": 4})
        assert said["tokens"] is not None
        qtbot.waitUntil(lambda: server.state.answered == 1)
        with pytest.raises(RemoteKeyError):
            RemoteServer(server.state.address, "Own", "hearth-wrong-key").models()
        old = server.key
        server.renew_key()
        qtbot.waitUntil(lambda: server.state.refused > 0)
        with pytest.raises(RemoteKeyError):
            RemoteServer(server.state.address, "Own", old).models()
        address = server.state.address
        server.take_settings(AppSettings())
        qtbot.waitUntil(lambda: not server.state.on)
        with pytest.raises(RemoteUnreachableError):
            RemoteServer(address, "Own", server.key).models()
    finally:
        assert worker.shutdown(30)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
