"""The place of a passage in a text, and the words for sources."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from app.chat.store.conversation import Attachment, Source
from app.ui.documents.document_labels import place_of
from app.ui.documents.source_text import AROUND_LINES, Excerpt, SourceText

TEXT = "\n".join(f"line {n}" for n in range(1, 2001))


def test_a_passage_is_shown_with_what_surrounds_it() -> None:
    one = Excerpt.around(TEXT, "line 1000\nline 1001", 1000, True)
    assert one is not None
    lines = one.before.splitlines()
    assert lines[-1] == "line 999"
    assert len(lines) <= AROUND_LINES + 1
    assert one.first_line == int(lines[0].split()[1])
    assert one.after.startswith("\nline 1002\n")
    assert one.before + one.passage + one.after in TEXT


def test_of_equal_passages_the_nearest_to_the_line_counts() -> None:
    text = "same\nother\n" * 10
    one = Excerpt.around(text, "same", 11, True)
    assert one is not None
    assert one.before.count("\n") == 10
    assert Excerpt.around(text, "gone", 1, True) is None
    assert Excerpt.around(text, "", 1, True) is None


@pytest.mark.gui
def test_the_marked_text_is_the_passage_also_after_signs_of_two_units(qtbot: QtBot) -> None:
    view = SourceText()
    qtbot.addWidget(view)
    view.show_excerpt(Excerpt("\U0001f525 fire\n", "the \U0001f525 passage\nof two lines", "\nafter", 7))
    assert view.passage == "the \U0001f525 passage\nof two lines"
    assert view.numbers_width() > 0
    view.show_excerpt(Excerpt("", "all of it"))
    assert (view.passage, view.numbers_width()) == ("", 0)


@pytest.mark.parametrize(
    ("name", "part", "label", "number_or_name"),
    [
        ("a.pdf", 3, "page 3", "3"), ("a.pptx", 4, "slide 4 (Costs)", "4"),
        ("a.xlsx", 2, "sheet 2 (Heat (new))", "Heat (new)"),
        ("a.epub", 5, "chapter 5", "5"), ("a.py", 1, "line 12", "12"), ("a.docx", 1, "line 12", ""),
    ],
)  # fmt: skip
def test_a_place_is_named_as_programs_show_it(name: str, part: int, label: str, number_or_name: str) -> None:
    words = place_of(Attachment(name, "x", "document", source=Source(1, f"/d/{name}", part, 12, label)))
    assert words.endswith(number_or_name)
    assert bool(words) == bool(number_or_name)
