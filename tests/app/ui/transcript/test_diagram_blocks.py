"""Mermaid in an answer: code while it is written, then a diagram, with a way to the code; code where none is drawn."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from PySide6.QtCore import QSize, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication, QPainter
from PySide6.QtSvg import QSvgRenderer
from pytestqt.qtbot import QtBot
from shown_messages import answer, show

from app.chat.exports import browser_page
from app.chat.store.conversation import MessageState
from app.diagrams import process
from app.diagrams.plain_svg import PlainSvg
from app.text.selected_text import whole_message
from app.ui.look import diagrams, theme
from app.ui.transcript.answer_view import AnswerView
from app.ui.transcript.text.code_block import CodeBlockView
from app.ui.transcript.transcript import Transcript

SOURCE = "pie\n a : 1"
BOX = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 100"><rect width="200" height="100"></rect></svg>'
TEXT = f"Look:\n\n```mermaid\n{SOURCE}\n```\n\nEnd"


@pytest.fixture(autouse=True)
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Draws nothing but a box, without a process; the sources that were drawn, and whether in dark colours."""
    calls: list[tuple[str, bool]] = []

    def draw(source: str, tokens: Mapping[str, Any]) -> PlainSvg | None:
        calls.append((source, tokens["dark"]))
        box = (
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 100"><rect width="200" height="100"></rect></svg>'
        )
        return None if "broken" in source else PlainSvg(box, 200, 100)

    monkeypatch.setattr(process, "draw", draw)
    monkeypatch.setattr(process, "can_draw", lambda: True)
    monkeypatch.setattr(process, "warm", lambda: None)
    diagrams.current()._cached.clear()
    return calls


def block(transcript: Transcript, which: int = 0) -> CodeBlockView:
    view = transcript.views[-1]
    assert isinstance(view, AnswerView)
    return [part for part in view.parts() if isinstance(part, CodeBlockView)][which]


def test_a_diagram_takes_the_place_of_its_code(transcript: Transcript, qtbot: QtBot) -> None:
    show(transcript, [answer(TEXT)])
    qtbot.waitUntil(lambda: block(transcript).shows_diagram)
    shown = block(transcript)
    assert shown.diagram is not None
    assert (shown.diagram.height(), shown.text.height()) == (100, 0)
    qtbot.waitUntil(lambda: not shown.diagram._picture.isNull())
    assert shown.diagram.grab().toImage().pixelColor(shown.diagram.width() // 2, 50).name() == "#000000"
    shown._switch.click()
    assert shown.text.height() > 20
    assert shown.text.toPlainText() == SOURCE
    assert not shown.diagram.isVisible()
    shown._switch.click()
    assert shown.text.height() == 0


def test_the_code_of_a_drawn_diagram_is_copied(transcript: Transcript, qtbot: QtBot) -> None:
    show(transcript, [answer(TEXT)])
    qtbot.waitUntil(lambda: block(transcript).shows_diagram)
    transcript.selection.select(whole_message(0))
    assert transcript.selection.plain_text() == f"Look:\n\n{SOURCE}\n\nEnd"
    assert transcript.selection.markdown() == TEXT
    block(transcript).copy()
    assert QGuiApplication.clipboard().text() == SOURCE


def test_what_cannot_be_drawn_stays_code_with_a_line_that_says_so(transcript: Transcript, qtbot: QtBot) -> None:
    show(transcript, [answer("```mermaid\nbroken\n```")])
    qtbot.waitUntil(lambda: block(transcript)._refused.isVisible())
    assert not block(transcript).shows_diagram
    assert block(transcript).text.toPlainText() == "broken"
    assert not block(transcript)._switch.isVisible()


def test_an_answer_that_is_written_shows_code(
    transcript: Transcript, qtbot: QtBot, drawn: list[tuple[str, bool]]
) -> None:
    message = answer("", MessageState.WRITING)
    show(transcript, [message])
    transcript.append_text(message.id, TEXT)
    transcript.flush()
    qtbot.wait(20)
    assert drawn == []
    assert block(transcript).text.toPlainText() == SOURCE
    transcript.finish_message(replace(message, text=TEXT, state=MessageState.COMPLETE))
    qtbot.waitUntil(lambda: block(transcript).shows_diagram)
    assert drawn == [(SOURCE, False)]


def test_a_diagram_is_painted_once_for_a_size_and_beside_the_window(
    transcript: Transcript, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    painters: list[tuple[QSize, bool]] = []
    render = QSvgRenderer.render

    def rendered(self: QSvgRenderer, painter: QPainter) -> None:
        painters.append((painter.device().size(), threading.current_thread() is threading.main_thread()))
        render(self, painter)

    monkeypatch.setattr("app.ui.look.diagrams.QSvgRenderer", type("Watched", (QSvgRenderer,), {"render": rendered}))
    show(transcript, [answer(TEXT)])
    qtbot.waitUntil(lambda: block(transcript).shows_diagram)
    shown = block(transcript).diagram
    assert shown is not None
    qtbot.waitUntil(lambda: not shown._picture.isNull())
    shown.grab()
    shown.grab()
    shown.setFixedWidth(120)
    qtbot.waitUntil(lambda: shown._picture.width() == 120)
    assert painters == [(QSize(200, 100), False), (QSize(120, 60), False)]


def test_the_process_is_started_while_a_diagram_is_written(
    transcript: Transcript, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[bool] = []
    monkeypatch.setattr(process, "warm", lambda: started.append(True))
    message = answer("", MessageState.WRITING)
    show(transcript, [message])
    for text in ("```python\n1\n```\n```mermaid\npie\n", " a", " : 1\n"):
        transcript.append_text(message.id, text)
        transcript.flush()
    qtbot.waitUntil(lambda: bool(started))
    assert started == [True]


def test_another_theme_draws_again(transcript: Transcript, qtbot: QtBot, drawn: list[tuple[str, bool]]) -> None:
    show(transcript, [answer(TEXT)])
    qtbot.waitUntil(lambda: block(transcript).shows_diagram)
    theme.apply(QGuiApplication.instance(), "dark", 1.0)  # type: ignore[arg-type]
    try:
        qtbot.waitUntil(lambda: (SOURCE, True) in drawn)
    finally:
        theme.apply(QGuiApplication.instance(), "light", 1.0)  # type: ignore[arg-type]


def test_a_system_without_the_library_shows_code(
    transcript: Transcript, monkeypatch: pytest.MonkeyPatch, drawn: list[tuple[str, bool]]
) -> None:
    monkeypatch.setattr(process, "can_draw", lambda: False)
    show(transcript, [answer(TEXT)])
    assert block(transcript).diagram is None
    assert drawn == []


@pytest.mark.parametrize(("language", "kind"), [("html", "html"), ("svg", "svg"), ("python", ""), ("xml", "")])
def test_html_and_svg_open_in_the_browser(
    transcript: Transcript, monkeypatch: pytest.MonkeyPatch, language: str, kind: str
) -> None:
    served: list[tuple[str, str]] = []
    opened: list[str] = []

    def serve(code: str, kind: str) -> str:
        served.append((code, kind))
        return "http://127.0.0.1:1/x"

    monkeypatch.setattr(browser_page, "serve", serve)
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(QUrl(url).toString()))
    show(transcript, [answer(f"```{language}\n<b>x</b>\n```")])
    button = block(transcript)._browse
    assert button.isVisible() == bool(kind)
    if kind:
        button.click()
        assert served == [("<b>x</b>", kind)]
        assert opened == ["http://127.0.0.1:1/x"]
