"""What of the user's documents goes along with a question of a chat."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection

import pytest
from desk import Desk

from app.chat.answers.answer_settings import AnswerSettings, request_for
from app.chat.answers.question_documents import QuestionDocuments
from app.chat.message_action import MessageAction
from app.chat.store.conversation import (
    Attachment,
    CallState,
    Conversation,
    Message,
    MessageState,
    Role,
    Source,
    ToolCall,
    content_of,
)
from app.clients.servers import Place, Server
from app.documents.gathering import Given

LEASE = Attachment("lease.pdf", "The deposit is 900.", "document", source=Source(1, "/d/lease.pdf", 2, 1, "page 2"))


class FakeFinder:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Collection[str], int, Given]] = []
        self.then: Callable[[tuple[Attachment, ...]], None] | None = None

    def find(
        self,
        question: str,
        folders: Collection[str],
        space: int,
        given: Given,
        then: Callable[[tuple[Attachment, ...]], None],
    ) -> None:
        self.asked.append((question, tuple(folders), space, given))
        self.then = then

    def answer(self, *found: Attachment) -> None:
        assert self.then is not None
        then, self.then = self.then, None
        then(found)


@pytest.fixture
def finder() -> FakeFinder:
    return FakeFinder()


@pytest.fixture
def desk(make_desk: Callable[..., Desk], finder: FakeFinder) -> Desk:
    made = make_desk(finder=finder)
    made.wait_ready()
    made.controller.choices.set(documents=["/d"])
    return made


def test_an_answer_waits_until_the_documents_are_searched(desk: Desk, finder: FakeFinder) -> None:
    desk.controller.send("How high is the deposit?")
    desk.wait(lambda: len(desk.stored()) == 2)  # both are kept before anything is found
    assert desk.last.state is MessageState.WRITING
    assert not desk.last.text
    (asked,) = finder.asked
    assert asked[:2] == ("How high is the deposit?", ("/d",))
    assert asked[2] > 0
    finder.answer(LEASE)
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)
    assert "The deposit is 900." in desk.last.text, "the fake repeats what it reads"
    assert desk.shown[0].attachments == (LEASE,)
    desk.close()
    assert desk.stored()[0].attachments == (LEASE,)


def test_what_was_given_is_told_to_the_next_search(desk: Desk, finder: FakeFinder) -> None:
    desk.controller.send("one")
    finder.answer(LEASE)
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)
    desk.controller.send("two")
    given = finder.asked[-1][3]
    assert (given.n, given.passages) == (1, {("/d/lease.pdf", 2, 1)})
    assert finder.asked[-1][2] < finder.asked[0][2], "there is less space now"
    finder.answer()
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)


def test_an_edited_question_is_searched_anew(desk: Desk, finder: FakeFinder) -> None:
    desk.controller.send("one")
    finder.answer(LEASE)
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)
    desk.controller.act(MessageAction("edit", desk.shown[0].id, "other"))
    assert finder.asked[-1][0] == "other"
    assert finder.asked[-1][3] == Given()
    finder.answer()
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)
    assert desk.shown[0].attachments == ()


def test_answering_again_keeps_what_was_found(desk: Desk, finder: FakeFinder) -> None:
    desk.controller.send("one")
    finder.answer(LEASE)
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)
    desk.controller.act(MessageAction("regenerate", desk.last.id))
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE and len(desk.versions) == 1)
    assert len(finder.asked) == 1
    assert "The deposit is 900." in desk.last.text


def test_a_search_can_be_stopped(desk: Desk, finder: FakeFinder) -> None:
    desk.controller.send("one")
    desk.controller.stop()
    desk.wait(lambda: desk.last.state is MessageState.CANCELLED)
    finder.answer(LEASE)  # too late, and no harm
    desk.controller.choices.set(documents=None)
    desk.say("two")
    assert desk.last.state is MessageState.COMPLETE


def test_a_question_that_is_deleted_meanwhile_stays_deleted(desk: Desk, finder: FakeFinder) -> None:
    desk.controller.send("one")
    desk.controller.stop()
    desk.controller.act(MessageAction("delete", desk.shown[0].id))
    finder.answer(LEASE)
    assert desk.shown == []


def test_a_server_gets_no_documents(make_desk: Callable[..., Desk], finder: FakeFinder) -> None:
    place = Place(Server("s", "Office", "http://127.0.0.1:9/v1", ("m",)), "m")
    desk = make_desk(finder=finder, place_for=lambda choices: place)
    desk.wait_ready()
    conversation = Conversation(choices={"documents": ["/d"]})
    desk.memory.add(conversation)
    question = Message(Role.USER, "one")
    gather = QuestionDocuments(desk.memory, desk.policy, finder, lambda: "", lambda: 4096).gather
    assert not gather(conversation.id, question, lambda found: None)
    assert finder.asked == []


def test_the_model_reads_numbered_texts_before_the_question() -> None:
    own = Attachment("notes.txt", "mine", "text")
    words = content_of("How high?", (own, LEASE))
    assert words.index("The deposit is 900.") < words.index("mine") < words.index("How high?")
    assert "[1: lease.pdf, page 2]" in words


def test_a_server_is_not_sent_what_was_found_for_earlier_questions() -> None:
    found = Attachment("lease.pdf", "The deposit is 900.", "document", source=Source(1, "/d/l.pdf", 3, 1, "page 3"))
    own = Attachment("note.txt", "My own note", "text")
    asked = Message(Role.USER, "How high?", attachments=(found, own))
    answer = Message(Role.ASSISTANT, "900.", parent=asked.id)
    again = Message(Role.USER, "Sure?", parent=answer.id)
    place = Place(Server("s", "Server", "http://192.168.1.2/v1"), "large")
    there = json.dumps(request_for([asked, answer, again], again.id, AnswerSettings(place=place)).messages)
    here = json.dumps(request_for([asked, answer, again], again.id, AnswerSettings()).messages)
    assert "The deposit is 900." in here
    assert "The deposit is 900." not in there
    assert "lease.pdf" not in there
    assert "My own note" in there


def test_a_server_is_not_sent_what_the_model_found_in_documents() -> None:
    asked = Message(Role.USER, "How high?")
    calls = (
        ToolCall("1", "search_documents", {"query": "deposit"}, CallState.DONE, result="The deposit is 900."),
        ToolCall("2", "calculate", {}, CallState.DONE, result="4711"),
    )
    called = Message(Role.ASSISTANT, "", parent=asked.id, calls=calls)
    answer = Message(Role.ASSISTANT, "I looked.", parent=called.id)
    again = Message(Role.USER, "Sure?", parent=answer.id)
    way = [asked, called, answer, again]
    place = Place(Server("s", "Server", "http://192.168.1.2/v1"), "large")
    for messages in (way, way[:2]):
        there = json.dumps(request_for(messages, messages[-1].id, AnswerSettings(place=place)).messages)
        here = json.dumps(request_for(messages, messages[-1].id, AnswerSettings()).messages)
        assert "The deposit is 900." in here
        assert "The deposit is 900." not in there
        assert "4711" in there


def test_a_waiting_answer_of_a_server_takes_no_documents_along_after_the_chat_left_it(
    make_desk: Callable[..., Desk], finder: FakeFinder
) -> None:
    places: list[Place | None] = [Place(Server("s", "Server", "http://127.0.0.1:9/v1", ("m",)), "m")]
    desk = make_desk(finder=finder, place_for=lambda choices: places[0])
    desk.wait_ready()
    conversation = Conversation()
    asked = Message(Role.USER, "How high?", attachments=(LEASE,))
    answer = Message(Role.ASSISTANT, "900.", parent=asked.id)
    again = Message(Role.USER, "Sure?", parent=answer.id)
    desk.memory.add(conversation)
    for one in (asked, answer, again):
        desk.memory.append(conversation.id, one)
    waiting = desk.controller.turns._new_answer(conversation.id, again)
    places[0] = None  # "Answer on this PC"
    assert waiting.place is not None
    request = waiting.request()
    assert request.place == waiting.place
    assert "The deposit is 900." not in json.dumps(request.messages)
