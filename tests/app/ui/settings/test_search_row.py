"""The settings of the web search: what is told when, and what becomes of a key."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLineEdit
from pytestqt.qtbot import QtBot

from app.settings import AppSettings
from app.ui.settings.search_row import SearchRow
from app.ui.settings.settings_dialog import SettingsDialog

pytestmark = pytest.mark.gui

ADDRESS = "https://searx.example.org"


def opened(qtbot: QtBot, has_key: bool = False, **values: Any) -> tuple[SettingsDialog, SearchRow]:
    dialog = SettingsDialog(AppSettings(search_has_key=has_key, **values))
    qtbot.addWidget(dialog)
    dialog.add_tools()
    dialog.show()
    row = dialog.rows["search_service"]
    assert isinstance(row, SearchRow)
    return dialog, row


def told(dialog: SettingsDialog) -> list[tuple[object, ...]]:
    out: list[tuple[object, ...]] = []
    dialog.search_changed.connect(lambda *values: out.append(values))
    return out


def test_an_address_is_told_once_it_is_one(qtbot: QtBot) -> None:
    dialog, row = opened(qtbot)
    out = told(dialog)
    assert (row.address.isHidden(), row.key.isHidden()) == (True, True)
    row.segments.buttons["searxng"].click()
    assert not row.address.isHidden()
    assert out == [], "there is no address yet"
    for bad in ("not an address", "http://far.example.org", "https://name:secret@example.org"):
        row.address.setText(bad)
        qtbot.keyClick(row.address, Qt.Key.Key_Return)
        assert row.says.token == "bad"
        assert row.says.words
    assert out == []
    row.address.setText(f" {ADDRESS} ")
    qtbot.keyClick(row.address, Qt.Key.Key_Return)
    assert out == [("searxng", ADDRESS, None)]
    assert row.says.token != "bad"
    assert (dialog.settings.search_service, dialog.settings.search_address) == ("searxng", ADDRESS)


def test_a_key_is_masked_told_once_and_not_kept_in_the_window(qtbot: QtBot) -> None:
    dialog, row = opened(qtbot)
    out = told(dialog)
    row.segments.buttons["brave"].click()
    assert row.key.echoMode() is QLineEdit.EchoMode.Password
    assert out == [], "there is no key yet"
    assert row.remove_button.isHidden()
    qtbot.keyClicks(row.key, "secret")
    qtbot.keyClick(row.key, Qt.Key.Key_Return)
    assert out == [("brave", "", "secret")]
    assert row.key.text() == ""
    assert "secret" not in repr(dialog.settings)
    assert not row.remove_button.isHidden()


def test_a_stored_key_is_used_and_can_be_removed(qtbot: QtBot) -> None:
    dialog, row = opened(qtbot, has_key=True)
    out = told(dialog)
    row.segments.buttons["brave"].click()
    row.remove_button.click()
    assert out == [("brave", "", None), ("", "", "")]
    assert row.segments.value() == ""
    assert dialog.settings.search_service == ""
    row.segments.buttons["brave"].click()
    assert len(out) == 2, "the key is gone"


def test_none_needs_nothing_and_the_address_stays(qtbot: QtBot) -> None:
    dialog, row = opened(qtbot, search_service="searxng", search_address=ADDRESS)
    assert row.segments.value() == "searxng"
    assert row.address.text() == ADDRESS
    out = told(dialog)
    row.segments.buttons[""].click()
    row.segments.buttons["searxng"].click()
    assert out == [("", ADDRESS, None), ("searxng", ADDRESS, None)]


def test_the_settings_are_told_after_the_key(qtbot: QtBot) -> None:
    dialog, row = opened(qtbot, has_key=True)
    order: list[str] = []
    dialog.search_changed.connect(lambda *_: order.append("search"))
    dialog.changed.connect(lambda _: order.append("settings"))
    row.segments.buttons["brave"].click()
    assert order == ["search", "settings"]


@pytest.mark.parametrize("typed", ["brave", "searxng", "web search", "tools"])
def test_the_row_is_found(qtbot: QtBot, typed: str) -> None:
    dialog, row = opened(qtbot)
    dialog.search.setText(typed)
    assert not row.isHidden()
    dialog.search.setText("temperature")
    assert row.isHidden()


def test_a_dialog_without_tools_has_no_row_for_them(qtbot: QtBot) -> None:
    dialog = SettingsDialog(AppSettings())
    qtbot.addWidget(dialog)
    assert not dialog.rows.keys() & {"search_service", "search_address"}
