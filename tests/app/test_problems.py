"""Which problem is shown: the newest that belongs to the chat in view, until it is solved or closed."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QObject

from app.problems import Problems
from app.user_messages import UserMessage


class Board(QObject):
    """What a window would show."""

    def __init__(self) -> None:
        super().__init__()
        self.problems = Problems()
        self.title = ""
        self.problems.shown.connect(lambda message: setattr(self, "title", message.title))
        self.problems.none.connect(lambda: setattr(self, "title", ""))


@pytest.fixture
def board(qapp: object) -> Board:
    return Board()


def said(title: str) -> UserMessage:
    return UserMessage(title, "")


def test_a_chats_problem_is_shown_with_its_chat_only(board: Board) -> None:
    p = board.problems
    p.show_chat("a")
    p.report("answer", said("Not finished"), "a")
    assert board.title == "Not finished"
    p.show_chat("")
    assert board.title == ""
    p.show_chat("b")
    assert board.title == ""
    p.report("answer", said("Elsewhere"), "a")
    assert board.title == "", "what fails in another chat waits there"
    p.show_chat("a")
    assert board.title == "Elsewhere"


def test_what_is_solved_goes_and_uncovers_what_is_not(board: Board) -> None:
    p = board.problems
    p.show_chat("a")
    p.report("store", said("Not saved"))
    p.report("answer", said("Not finished"), "a")
    p.report("import", said("Not imported"))
    p.solve("import")
    assert board.title == "Not finished"
    p.solve("answer", chat="b")
    assert board.title == "Not finished", "another chat's"
    p.solve("answer", chat="a")
    assert board.title == "Not saved"
    p.solve("store")
    assert board.title == ""


def test_what_is_closed_does_not_come_back(board: Board) -> None:
    p = board.problems
    p.show_chat("a")
    p.report("answer", said("Not finished"), "a")
    p.close()
    assert board.title == ""
    p.show_chat("b")
    p.show_chat("a")
    assert board.title == ""


def test_a_deleted_chat_takes_its_problems_along(board: Board) -> None:
    p = board.problems
    p.show_chat("a")
    p.report("answer", said("Not finished"), "a")
    p.report("attachment", said("Not attached"), "a")
    p.discard_chat("a")
    assert board.title == ""


def test_a_newer_one_of_a_kind_takes_the_olders_place(board: Board) -> None:
    p = board.problems
    p.report("import", said("First"))
    p.report("import", said("Second"))
    p.solve("import")
    assert board.title == ""


def test_what_goes_wrong_in_the_background_does_not_cover_unsaved_chats(board: Board) -> None:
    p = board.problems
    p.show_chat("a")
    p.report("store", said("Not saved"))
    p.report("models", said("No list of downloads"))
    assert board.title == "Not saved"
    p.report("store", said("Still not saved"))
    assert board.title == "Still not saved"
    p.report("answer", said("Not finished"), "a")
    assert board.title == "Not finished", "the user waits for it"
    p.solve("answer", chat="a")
    p.solve("store")
    assert board.title == "No list of downloads"
