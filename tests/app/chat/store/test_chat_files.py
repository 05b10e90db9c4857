"""Chats that leave as files and come back: the same bytes, and nothing that a hostile file wants."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.chat.store import chat_file_check, chat_files
from app.chat.store.chat_file_check import parsed
from app.chat.store.chat_files import file_name, plain, read_json, write_json, write_markdown, write_markdown_folder
from app.chat.store.conversation import Attachment, Conversation, Message, MessageState, Role, Source, WholeChat
from app.chat.store.store import Store
from app.errors import ChatFileError

PAPER = Attachment("Straße 火.pdf", "page one\n```\ncode\n```", "pdf", 2)


def whole(title: str = "A tree \U0001f525", at: float = 1_700_000_000.25) -> WholeChat:
    """A chat with two versions of an answer, of which the first is shown."""
    asked = Message(Role.USER, "What is \x00 this?\r\n\u2028", created_at=at, attachments=(PAPER,))
    first = Message(
        Role.ASSISTANT, "**That**", created_at=at + 0.1, parent=asked.id, state=MessageState.CANCELLED,
        stats={"tokens": 3, "ttft_s": None, "decode_tok_s": 39.123456789, "model": "Pip", "thought_s": 6.2},
    )  # fmt: skip
    second = Message(Role.ASSISTANT, "No", created_at=at + 0.2, parent=asked.id, state=MessageState.LENGTH, stats={})
    head = Conversation(
        title=title, created_at=at, updated_at=at + 5, pinned=True, folder="Work/наука", leaf=first.id,
        choices={"mode": "exact", "sampling": {"seed": 7, "stop": ["a", "b"]}}, draft="unsent, private",
    )  # fmt: skip
    return WholeChat(head, (asked, first, second))


def stored(path: Path, chats: list[WholeChat]) -> Store:
    store = Store.open(path)
    store.add_chats(chats)
    return store


def whole_chat(store: Store, conversation_id: str) -> WholeChat | None:
    """A chat with all its messages; None if it is deleted."""
    conversation = store.conversation(conversation_id)
    return None if conversation is None else WholeChat(conversation, tuple(store.messages(conversation_id)))


def everything(store: Store) -> list[WholeChat]:
    found = [whole_chat(store, c.id) for c in sorted(store.conversations(), key=lambda c: c.created_at)]
    return [chat for chat in found if chat is not None]


# --- there and back


def test_what_was_exported_and_imported_is_exported_with_the_same_bytes(tmp_path: Path) -> None:
    chats = [whole(at=1e9), whole("", at=2e9), WholeChat(Conversation(created_at=0.0, updated_at=3e9), ())]
    store = stored(tmp_path / "one.db", chats)
    assert write_json(tmp_path / "one.json", everything(store)) == 3
    other = stored(tmp_path / "two.db", read_json(tmp_path / "one.json"))
    assert everything(other) == [dataclasses.replace(c, conversation=dataclasses.replace(c.conversation, draft=""))
                                 for c in everything(store)]  # fmt: skip
    write_json(tmp_path / "two.json", everything(other))
    assert (tmp_path / "two.json").read_bytes() == (tmp_path / "one.json").read_bytes()
    store.close()
    other.close()


def test_no_chats_are_a_file_too(tmp_path: Path) -> None:
    assert write_json(tmp_path / "none.json", []) == 0
    assert read_json(tmp_path / "none.json") == []


def test_a_draft_stays_here(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", [whole()])
    assert "private" not in (tmp_path / "x.json").read_text("utf-8")


def test_what_json_cannot_hold_is_replaced(tmp_path: Path) -> None:
    odd = Message(Role.ASSISTANT, "half \ud83d", state=MessageState.WRITING, stats={"decode_tok_s": float("nan")})
    write_json(tmp_path / "odd.json", [WholeChat(Conversation(title="\udfff", leaf="gone"), (odd,))])
    (chat,) = read_json(tmp_path / "odd.json")
    assert (chat.conversation.title, chat.conversation.leaf) == ("\ufffd", "")
    (message,) = chat.messages
    assert (message.text, message.state) == ("half \ufffd", MessageState.INTERRUPTED)
    assert message.stats == {"decode_tok_s": None}


def test_a_chat_that_is_here_already_is_not_taken_twice(tmp_path: Path) -> None:
    chat = whole()
    store = stored(tmp_path / "s.db", [chat])
    assert store.add_chats([chat]) == []
    changed = WholeChat(chat.conversation, (*chat.messages, Message(Role.USER, "more", parent=chat.messages[1].id)))
    (copied,) = store.add_chats([changed])
    assert copied.id != chat.conversation.id
    assert len(store.conversations()) == 2
    assert [m.text for m in store.messages(copied.id)] == [m.text for m in changed.messages]
    back = whole_chat(store, copied.id)
    assert back is not None
    assert back.conversation.leaf == back.messages[1].id
    assert [m.parent for m in back.messages] == ["", back.messages[0].id, back.messages[0].id, back.messages[1].id]
    assert whole_chat(store, chat.conversation.id) is not None
    store.delete(chat.conversation.id)
    assert len(store.add_chats([chat])) == 1  # the deleted one may still be brought back, so this is another
    store.restore(chat.conversation.id)
    assert len(store.conversations()) == 3
    store.close()


def test_imports_are_taken_in_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    store = stored(tmp_path / "s.db", [])
    twins = [whole(), whole()]
    broken = WholeChat(Conversation(), (Message(Role.USER, "a", id="x"), Message(Role.USER, "b", id="x")))
    with pytest.raises(Exception, match="UNIQUE"):
        store.add_chats([*twins, broken])
    assert store.conversations() == []
    store.close()


# --- Markdown


def test_markdown_is_the_branch_that_is_shown(tmp_path: Path) -> None:
    write_markdown(tmp_path / "c.md", whole())
    text = (tmp_path / "c.md").read_text("utf-8")
    assert text == (
        "# A tree \U0001f525\n\n*2023-11-14*\n\n## You\n\n**Straße 火.pdf** (2 pages)\n\n"
        "````\npage one\n```\ncode\n```\n````\n\nWhat is \x00 this?\r\n\u2028\n\n## Pip\n\n**That**\n\n*Stopped*\n"
    ).replace("\r\n", "\n")
    assert b"\r" in (tmp_path / "c.md").read_bytes()


def test_markdown_names_sources_by_their_numbers_and_leaves_out_whole_documents(tmp_path: Path) -> None:
    passage = Attachment("lease.pdf", "The deposit is 900.", "document", source=Source(1, "/d/l.pdf", 3, 1, "page 3"))
    document = Attachment("all.txt", "A long text", "document", source=Source(2, "/d/all.txt", label="the whole text"))
    question = Message(Role.USER, "How high?", attachments=(passage, document))
    write_markdown(tmp_path / "c.md", WholeChat(Conversation(), (question,)))
    text = (tmp_path / "c.md").read_text("utf-8")
    assert "**[1] lease.pdf, page 3**\n\n```\nThe deposit is 900.\n```" in text
    assert "**[2] all.txt, the whole text**" in text
    assert "A long text" not in text


def test_a_folder_of_markdown_never_writes_over_a_file(tmp_path: Path) -> None:
    mine = tmp_path / "out" / "Same.md"
    mine.parent.mkdir()
    mine.write_text("mine")
    flat = [WholeChat(Conversation(title=title), ()) for title in ("Same", "Same", "", "CON", "../../up", "a/b")]
    assert write_markdown_folder(tmp_path / "out", [*flat, whole()]) == 7
    names = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.md"))
    assert mine.read_text() == "mine"
    assert names == sorted(
        str(Path("out") / name)
        for name in ("Same.md", "Same (2).md", "Same (3).md", "New chat.md", "_CON.md", "up.md", "a b.md",
                     "Work наука/A tree \U0001f525.md")
    )  # fmt: skip


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Plain words", "Plain words"), ("a:b*c?", "a b c"), ("  .hidden. ", "hidden"), ("nul.txt", "_nul.txt"),
        ("\x07\u202e", "New chat"),
        ("..", "New chat"), ("COM1", "_COM1"), ("e\u0301", "é"), ("x" * 500, "x" * 80), ("tab\there", "tab here"),
    ],
)  # fmt: skip
def test_a_title_becomes_a_name_that_every_system_takes(title: str, name: str) -> None:
    assert file_name(title) == name
    assert len(file_name("\U0001f525" * 200).encode()) <= 240


def test_a_disk_that_fills_up_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_text("old")

    def chats() -> Any:
        yield whole()
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="space"):
        write_json(path, chats())
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["kept.json"]


# --- hostile files


def good() -> dict[str, Any]:
    return {"format": "hearth-chats", "version": 1, "chats": [plain(whole()), plain(whole("second"))]}


def read(value: object) -> list[WholeChat]:
    return parsed(json.dumps(value).encode())


Spoil = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], Any]  # of the file, a chat, a message

SPOILT: dict[str, Spoil] = {
    "no chats": lambda f, c, m: f.pop("chats"),
    "chats of another kind": lambda f, c, m: f.update(chats={"a": 1}),
    "another format": lambda f, c, m: f.update(format="other"),
    "a later version": lambda f, c, m: f.update(version=2),
    "an older version": lambda f, c, m: f.update(version=0),
    "no version": lambda f, c, m: f.update(version="1"),
    "a chat that is none": lambda f, c, m: f["chats"].append(None),
    "the same chat twice": lambda f, c, m: f["chats"].append(c),
    "the same message twice": lambda f, c, m: c["messages"].append(m),
    "a path as an id": lambda f, c, m: c.update(id="../../etc"),
    "an id that is none": lambda f, c, m: m.update(id=7),
    "no id": lambda f, c, m: m.pop("id"),
    "a parent from another chat": lambda f, c, m: m.update(parent=f["chats"][1]["messages"][0]["id"]),
    "a parent that is itself": lambda f, c, m: m.update(parent=m["id"]),
    "a parent that comes later": lambda f, c, m: m.update(parent=c["messages"][2]["id"]),
    "a leaf that is not there": lambda f, c, m: c.update(leaf="nowhere"),
    "a role that is none": lambda f, c, m: m.update(role="wizard"),
    "a role that is a list": lambda f, c, m: m.update(role=["user"]),
    "a state that is none": lambda f, c, m: m.update(state={}),
    "a text that is none": lambda f, c, m: m.update(text=["a"]),
    "half a character": lambda f, c, m: m.update(text="\ud83d"),
    "a time without end": lambda f, c, m: m.update(created_at=1e300),
    "a time before time": lambda f, c, m: c.update(updated_at=-1),
    "a time that is none": lambda f, c, m: c.update(created_at="now"),
    "a time that is true": lambda f, c, m: c.update(created_at=True),
    "a huge number": lambda f, c, m: c.update(updated_at=10**4000),
    "pinned with words": lambda f, c, m: c.update(pinned="yes"),
    "choices that are none": lambda f, c, m: c.update(choices=[1]),
    "choices that are deep": lambda f, c, m: c.update(choices=json.loads('{"a":' * 40 + "1" + "}" * 40)),
    "choices that are large": lambda f, c, m: c.update(choices={"a": "x" * (2 << 20)}),
    "choices with half a character": lambda f, c, m: c.update(choices={"\ud83d": 1}),
    "a long title": lambda f, c, m: c.update(title="x" * 100_000),
    "a folder that is none": lambda f, c, m: c.update(folder=None),
    "statistics that lie": lambda f, c, m: m.update(stats={"decode_tok_s": "fast"}),
    "statistics that are true": lambda f, c, m: m.update(stats={"tokens": True}),
    "statistics of words": lambda f, c, m: m.update(stats="fast"),
    "attachments that are none": lambda f, c, m: m.update(attachments=None),
    "an attachment that is none": lambda f, c, m: m.update(attachments=["a.pdf"]),
    "an attachment of another kind": lambda f, c, m: m.update(attachments=[{"name": "a", "text": "", "kind": "exe"}]),
    "an attachment without text": lambda f, c, m: m.update(attachments=[{"name": "a", "kind": "pdf"}]),
    "pages below none": lambda f, c, m: m["attachments"][0].update(n_pages=-1),
    "pages without end": lambda f, c, m: m["attachments"][0].update(n_pages=10**12),
    "too many attachments": lambda f, c, m: m.update(attachments=m["attachments"] * 500),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT.keys())
def test_a_spoilt_file_is_refused_in_a_sentence(spoil: Spoil) -> None:
    file = good()
    assert len(read(file)) == 2
    spoil(file, file["chats"][0], file["chats"][0]["messages"][0])
    with pytest.raises(ChatFileError) as caught:
        read(file)
    assert caught.value.message.endswith(".")
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"[]", b"{", b"\xff\xfe\x00", b"[" * 200_000, b'{"a":' * 100_000, b'{"format": NaN}', b"[1e999999, ",
     b"9" * 10_000, b'"hearth-chats"', b"PK\x03\x04" + bytes(500), b"# A chat\n\nin Markdown"],
)  # fmt: skip
def test_what_is_no_file_of_chats_is_refused(data: bytes) -> None:
    with pytest.raises(ChatFileError):
        parsed(data)


def test_a_byte_order_mark_does_no_harm() -> None:
    assert len(parsed(b"\xef\xbb\xbf" + json.dumps(good()).encode())) == 2


def test_large_files_are_refused_before_they_are_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.json"
    write_json(path, [whole()])
    monkeypatch.setattr(chat_files, "MOST_FILE_BYTES", 100)
    with pytest.raises(ChatFileError, match="larger"):
        read_json(path)
    monkeypatch.undo()
    monkeypatch.setattr(chat_file_check, "MOST_CONTAINERS", 2)
    with pytest.raises(ChatFileError, match="more values"):
        read_json(path)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_written_into_a_file_it_is_read_or_refused(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    store = stored(tmp_path / "s.db", [])
    junk = [None, True, 0, -1, 1e308, "", "x" * 70, [], {}, [[]], {"a": {}}, "\u202e", "user", "complete"]

    def spoil(value: Any) -> Any:
        if dice.random() < 0.02:
            return copy.deepcopy(dice.choice(junk))
        if isinstance(value, dict):
            return {name: spoil(one) for name, one in value.items() if dice.random() > 0.01}
        if isinstance(value, list):
            return [spoil(one) for one in value]
        return value

    for _ in range(150):
        file = spoil(good())
        try:
            chats = read(file)
        except ChatFileError:
            continue
        added = store.add_chats(chats)
        for conversation in added:
            assert whole_chat(store, conversation.id) is not None
        write_json(tmp_path / "again.json", chats)
        assert read_json(tmp_path / "again.json") == chats
    store.close()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(ChatFileError):
        read_json(tmp_path / "pipe.json")


@pytest.mark.parametrize(
    "value",
    ['"' + "x" * (2 << 16) + '"', "[" + "1," * (2 << 16) + "1]", '{"' + "x" * (2 << 16) + '": 1}'],
    ids=["text", "list", "name"],
)
def test_large_statistics_are_refused_before_they_are_written_as_json(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """json.dumps keeps the interpreter to itself: a text of 100 MB held up the window for a second."""
    monkeypatch.setattr(chat_file_check, "LONGEST_PLAIN", 1 << 16)
    monkeypatch.setattr(chat_file_check.json, "dumps", lambda *_, **__: pytest.fail("it was written as JSON"))
    file = (
        '{"format": "hearth-chats", "version": 1, "chats": [{"id": "c", "created_at": 1, "updated_at": 1, "messages": '
        '[{"id": "m", "role": "assistant", "created_at": 1, "text": "", "stats": {"a": ' + value + "}}]}]}"
    )
    with pytest.raises(ChatFileError):
        parsed(file.encode())
