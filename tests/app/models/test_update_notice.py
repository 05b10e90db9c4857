"""A newer version is told where the person allowed to look for one, and only there."""

from __future__ import annotations

from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from app.models.update_notice import UpdateNotice
from app.settings import AppSettings
from app.ui.settings.settings_dialog import SettingsDialog
from engine.library.hub import release


class Answering:
    """The library's process, which knows of a version."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values, self.asked = values, 0

    def ask(self, job: str, arguments: dict[str, Any], done: Any, failed: Any) -> str:
        assert (job, arguments) == ("newer_release", {})
        self.asked += 1
        done(self.values)
        return "1"


@pytest.fixture
def build_with_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "feed", lambda: "https://example.org/latest")


@pytest.mark.usefixtures("build_with_feed", "qapp")
def test_a_newer_version_is_told_once_where_that_is_allowed() -> None:
    library, told = Answering({"version": "9.1", "page": "https://example.org/9.1"}), []
    notice = UpdateNotice(library)  # type: ignore[arg-type]  # of the process, only what is used
    notice.found.connect(told.append)
    notice.take_settings(AppSettings())
    assert library.asked == 0
    for _ in range(2):
        notice.take_settings(AppSettings(look_for_updates=True))
    assert library.asked == 1
    assert [("9.1" in one.title, one.details) for one in told] == [(True, "https://example.org/9.1")]


@pytest.mark.usefixtures("build_with_feed", "qapp")
def test_no_newer_version_is_no_news() -> None:
    notice, told = UpdateNotice(Answering({})), []  # type: ignore[arg-type]
    notice.found.connect(told.append)
    notice.take_settings(AppSettings(look_for_updates=True))
    assert told == []


@pytest.mark.usefixtures("qapp")
def test_a_checkout_looks_nowhere() -> None:
    library = Answering({"version": "9.1", "page": ""})
    UpdateNotice(library).take_settings(AppSettings(look_for_updates=True))  # type: ignore[arg-type]
    assert library.asked == 0


def test_the_switch_is_there_only_where_it_can_do_something(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    without = SettingsDialog(AppSettings())
    qtbot.addWidget(without)
    assert "look_for_updates" not in without.rows
    monkeypatch.setattr(release, "feed", lambda: "https://example.org/latest")
    with_it = SettingsDialog(AppSettings())
    qtbot.addWidget(with_it)
    assert "look_for_updates" in with_it.rows
