"""Every page, dialog, popover and menu in each language: no word is cut, in a small window and at the largest type."""

from __future__ import annotations

from collections.abc import Iterator

import control_walk as walk
import pytest
from control_room import NARROW, Room
from PySide6.QtCore import QLocale
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from test_every_control import PLACES, faults

from app.ui.look import language, theme

pytestmark = [pytest.mark.gui, pytest.mark.slow]


@pytest.fixture(scope="module", params=language.TRANSLATED)
def foreign_room(
    request: pytest.FixtureRequest, qapp: QApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Room]:
    before = QLocale()
    language.use_language(request.param)
    room = Room(QtBot(request), tmp_path_factory.mktemp("room"))
    yield room
    room.reset()
    room.leave()
    room.window.deleteLater()
    language.use_language("en")
    QLocale.setDefault(before)


@pytest.mark.parametrize("zoom", [1.0, theme.MAX_ZOOM])
@pytest.mark.parametrize("place", PLACES)
def test_no_word_is_cut(foreign_room: Room, qapp: QApplication, place: str, zoom: float) -> None:
    room = foreign_room
    room.reset()
    if theme.current().zoom != zoom:
        theme.apply(qapp, "light", zoom)
    room.window.resize(*NARROW)
    walk.settle()
    try:
        root = PLACES[place](room)
        walk.come_to_rest(room.window)
        faults(walk.cut(root))
    finally:
        if room.hearth.controller.status.answering:
            room.hearth.controller.stop()
            room.wait_ready()
        theme.apply(qapp, "light", 1.0)
