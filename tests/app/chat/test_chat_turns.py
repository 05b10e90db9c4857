"""Branches: asking otherwise, answering anew, going on, switching, deleting and taking it back; also on the disk."""

from __future__ import annotations

from pathlib import Path

from desk import Desk, MakeDesk

from app.chat.answers.answer_queue import joined
from app.chat.answers.answer_settings import history
from app.chat.chat_turns import STILL_ANSWERING, versions_of
from app.chat.message_action import ActionName, MessageAction
from app.chat.store.conversation import Attachment, Message, MessageState, Role, branch
from app.settings import AppSettings


def act(desk: Desk, name: ActionName, message: Message, text: str = "", step: int = 0) -> None:
    desk.controller.act(MessageAction(name, message.id, text, step))


def texts(desk: Desk) -> list[str]:
    return [message.text.strip() for message in desk.shown]


def finish(desk: Desk) -> None:
    desk.wait(lambda: desk.shown and desk.last.state is not MessageState.WRITING)


def on_disk(desk: Desk) -> list[str]:
    """The branch that another program would show."""
    from app.chat.store.store import Store

    store = Store.open(desk.path)
    chat = store.conversations()[0]
    shown = branch(store.messages(chat.id), chat.leaf)
    store.close()
    return [message.text.strip() for message in shown]


def test_an_edited_question_begins_a_branch_and_the_old_one_stays(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.say("one")
    desk.say("two")
    first = desk.shown[0]
    act(desk, "edit", first, "other")
    finish(desk)
    assert texts(desk) == ["other", "other"]
    assert desk.versions == {desk.shown[0].id: (2, 2)}
    act(desk, "switch", desk.shown[0], step=-1)
    assert texts(desk) == ["one", "one", "two", "two"]
    assert desk.versions == {first.id: (1, 2)}
    act(desk, "switch", first, step=-1)
    assert texts(desk) == ["one", "one", "two", "two"], "there is none before the first"
    desk.close()
    assert on_disk(desk) == ["one", "one", "two", "two"]


def test_an_answer_given_anew_stands_beside_the_old_one(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.say("one")
    old = desk.last
    desk.say("two")
    act(desk, "regenerate", old)
    finish(desk)
    assert texts(desk) == ["one", "one"]
    assert desk.last.id != old.id
    assert desk.versions == {desk.last.id: (2, 2)}
    desk.say("history 1")
    assert '"two"' not in desk.last.text, "the other branch is not sent"
    act(desk, "switch", desk.shown[1], step=-1)
    assert texts(desk) == ["one", "one", "two", "two"]


def test_a_cut_answer_is_written_on_in_its_place(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.send("words 100000 pace 0.01")
    desk.wait(lambda: "word3" in desk.last.text)
    desk.controller.stop()
    desk.wait(lambda: desk.last.state is MessageState.CANCELLED)
    begun = desk.last
    act(desk, "continue", begun)
    assert desk.last.state is MessageState.WRITING
    finish(desk)
    assert desk.last.id == begun.id
    assert desk.last.text == begun.text + begun.text, "the fake repeats what it is to go on with"
    assert desk.last.state is MessageState.COMPLETE
    assert desk.last.stats is not None
    assert begun.stats is not None
    assert desk.last.stats["tokens"] == 2 * begun.stats["tokens"]
    assert desk.last.stats["total_s"] == 1.0
    act(desk, "continue", desk.last)
    assert desk.last.state is MessageState.COMPLETE, "a whole answer has nothing to go on with"
    desk.close()
    assert on_disk(desk)[-1] == desk.last.text.strip()


def test_a_turn_is_deleted_and_comes_back(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    for words in ("one", "two", "three"):
        desk.say(words)
    whole = desk.shown
    act(desk, "delete", whole[2])
    assert texts(desk) == ["one", "one", "three", "three"]
    desk.toasts[-1][1]()  # undo
    assert desk.shown == whole
    act(desk, "delete", whole[-1])
    assert texts(desk) == ["one", "one", "two", "two", "three"]
    desk.say("history 1")
    assert '"three"' not in desk.last.text, "a question without an answer is not sent"
    desk.close()
    assert on_disk(desk)[:5] == ["one", "one", "two", "two", "three"]


def test_a_deleted_version_gives_way_to_another_and_comes_back(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.say("one")
    first = desk.last
    desk.say("two")
    act(desk, "regenerate", first)
    finish(desk)
    second = desk.last
    act(desk, "switch", second, step=-1)
    act(desk, "delete", first)
    assert desk.last.id == second.id
    assert desk.toasts[-1][0] == "3 messages deleted"
    assert desk.versions == {}
    desk.toasts[-1][1]()
    assert texts(desk) == ["one", "one", "two", "two"]
    assert desk.versions == {first.id: (1, 2)}


def test_everything_deleted_leaves_an_empty_chat(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.say("one")
    act(desk, "delete", desk.shown[0])
    assert desk.shown == []
    desk.say("again")
    assert texts(desk) == ["again", "again"]


def test_nothing_is_changed_while_an_answer_is_under_way(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.say("one")
    desk.controller.send("words 100000 pace 0.01")
    desk.wait(lambda: "word1" in desk.last.text)
    for name in ("delete", "regenerate", "edit"):
        act(desk, name, desk.shown[0], "else")  # type: ignore[arg-type]
        assert desk.toasts[-1] == (STILL_ANSWERING, "warn")
    assert len(desk.shown) == 4
    desk.controller.stop()
    finish(desk)


def test_a_branch_that_is_left_in_mid_answer_goes_on(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.say("one")
    first = desk.shown[0]
    act(desk, "edit", first, f"words 60 until {tmp_path / 'go_on'}")
    desk.wait(lambda: "word2" in desk.last.text)
    running = desk.last.id
    act(desk, "switch", desk.shown[0], step=-1)
    assert texts(desk) == ["one", "one"]
    (tmp_path / "go_on").touch()
    desk.wait(lambda: desk.controller.answers.running is None)
    act(desk, "switch", first, step=1)
    assert desk.last.id == running
    assert desk.last.text.endswith("word59 ")


def test_a_message_of_another_branch_is_found_and_shown(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    wanted: list[tuple[str, str]] = []
    desk.controller.message_wanted.connect(lambda message, text: wanted.append((message, text)))
    desk.say("one")
    first = desk.shown[0]
    act(desk, "edit", first, "other")
    finish(desk)
    chat = desk.opened
    assert chat is not None
    desk.controller.new_chat()
    desk.controller.open_at(chat.id, first.id, "on")
    assert texts(desk) == ["one", "one"]
    assert wanted == [(first.id, "on")]


def test_thoughts_are_timed_kept_and_not_sent_back(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    answer = desk.say("<think> let me see </think> Hello")
    assert answer.text.startswith("<think> let me")
    assert answer.stats is not None
    assert answer.stats["thought_tokens"] >= 4
    assert 0 <= answer.stats["thought_s"] < 5
    desk.say("history 1")
    assert "let me see" not in desk.last.text.split("history 1")[0].replace(desk.shown[0].text, "")


def test_the_policy_says_how_a_chat_is_answered(make_desk: MakeDesk) -> None:
    desk = make_desk(settings=AppSettings(system_prompt="Be brief.", mode="dense"))
    desk.wait_ready()
    desk.controller.choices.set(overflow="stop", sampling={"seed": 1})
    request = desk.controller.next_request("hello", (Attachment("a.txt", "body", "text"),))
    attached = "[a.txt]\nbody\n[End of a.txt]\n\nhello"
    assert request.messages == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": attached}]
    assert (request.sampling, request.mode, request.overflow) == ({"seed": 1}, "dense", "stop")
    assert not request.continues
    desk.say("history 1")
    assert "Be brief." in desk.last.text


def test_history_leaves_thoughts_and_empty_turns_out() -> None:
    said = [
        Message(Role.USER, "a"), Message(Role.ASSISTANT, "<think>\nhm\n</think>\n\nA"),
        Message(Role.USER, "b"), Message(Role.ASSISTANT, "<think>\nonly thought"),
        Message(Role.USER, "c"),
    ]  # fmt: skip
    assert [m["content"] for m in history(said, said[-1].id, "")] == ["a", "A", "c"]


def test_versions_are_counted_among_messages_of_one_kind() -> None:
    a = Message(Role.USER, "a")
    b, c = (Message(Role.ASSISTANT, text, parent=a.id) for text in "bc")
    d = Message(Role.USER, "d", parent=a.id)
    assert versions_of([a, b, c, d], [a, c]) == {c.id: (2, 2)}


def test_figures_of_both_pieces_are_joined() -> None:
    first = {"tokens": 10, "total_s": 1.0, "decode_tok_s": 10.0, "ttft_s": 0.1, "mode": "exact", "guessed_tokens": 3}
    then = {"tokens": 30, "total_s": 1.5, "decode_tok_s": 20.0, "ttft_s": 0.5, "mode": "dense", "guessed_tokens": 4}
    assert joined(first, then) == {
        "tokens": 40, "total_s": 2.5, "decode_tok_s": 16.0, "ttft_s": 0.1, "mode": "dense", "guessed_tokens": 7,
    }  # fmt: skip
    sources = joined({**first, "guesses": {"lookup": [3, 1]}}, {**then, "guesses": {"lookup": [1, 1], "draft": [3, 2]}})
    assert sources is not None
    assert sources["guesses"] == {"lookup": [4, 2], "draft": [3, 2]}
    assert joined(None, then) == then
    assert joined(first, None) == first
