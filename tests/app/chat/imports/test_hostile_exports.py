"""Exports that are damaged or hostile: a chat is skipped and counted, or the import fails with a reason."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
from exports import AT, Read, claude_like, gpt4all_chat, gpt_chat, gpt_node, shown, simple_gpt_chat, write

from app.chat.imports import chatgpt, claude, json_stream, lm_studio, open_webui, sources
from app.chat.imports.building import LeftOut, SkippedChatError, seconds
from app.chat.imports.json_stream import JsonStream, NotJsonError, Skipped
from app.chat.imports.sources import ImportFailedError
from app.chat.store.chat_file_check import parsed
from app.chat.store.chat_files import write_json

READERS = (chatgpt, claude, open_webui, lm_studio)


def values(data: bytes) -> list[Any]:
    return list(JsonStream(io.BytesIO(data)).values())


# --- the stream


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64])
def test_values_are_the_same_in_chunks_of_any_size(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    wanted = [{"a": ['x\\"]}', -1.5e3, None]}, "é\n日本", 12345, [], {}, True, [[[1]]]]
    monkeypatch.setattr(json_stream, "CHUNK_BYTES", chunk)
    for text in (json.dumps(wanted), json.dumps(wanted, ensure_ascii=False, indent=3)):
        assert values(text.encode("utf-8-sig")) == wanted


@pytest.mark.parametrize("chunk", [1, 5, 1 << 20])
@pytest.mark.parametrize(
    "bad", ["[" * 100_000 + "]" * 100_000, '{"a" 1}', '{"n": ' + "9" * 5000 + "}", '{"a": tru}', '{"x\\"]" 1}']
)
def test_a_bad_value_is_skipped_and_the_next_is_read(monkeypatch: pytest.MonkeyPatch, bad: str, chunk: int) -> None:
    monkeypatch.setattr(json_stream, "CHUNK_BYTES", chunk)
    assert values(f'[1, {bad}, {{"after": 2}}]'.encode()) == [1, Skipped("damaged"), {"after": 2}]


def test_a_value_that_is_too_large_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "CHUNK_BYTES", 64)
    monkeypatch.setattr(json_stream, "MOST_VALUE_CHARS", 1000)
    assert values(json.dumps(["x" * 5000, 1]).encode()) == [Skipped("large"), 1]
    monkeypatch.setattr(json_stream, "MOST_CONTAINERS", 20)
    assert values(json.dumps([[[] for _ in range(200)], 1]).encode()) == [Skipped("large"), 1]


def test_a_file_that_is_cut_off_gives_what_is_whole(tmp_path: Path) -> None:
    whole = json.dumps([simple_gpt_chat(f"c{n}") for n in range(3)])
    (tmp_path / "conversations.json").write_text(whole[: int(len(whole) * 0.8)])
    read = Read(tmp_path)
    assert len(read.chats) == 2
    assert read.cut == 1


def test_what_is_no_json_is_told(tmp_path: Path) -> None:
    for data in (b"", b"   ", b"\x89PNG", b"NaN"):
        with pytest.raises(NotJsonError):
            values(data)


def test_bytes_that_are_no_utf8_cost_a_character(tmp_path: Path) -> None:
    data = json.dumps([simple_gpt_chat(text="before@after")]).encode().replace(b"@", b"\xff")
    (tmp_path / "conversations.json").write_bytes(data)
    assert shown(Read(tmp_path).chat)[0][1] == "before\ufffdafter"


# --- trees


def test_cycles_missing_parents_and_own_parents_lose_no_message(tmp_path: Path) -> None:
    nodes = [
        gpt_node("a", "b", "user", ["in a cycle"]),
        gpt_node("b", "a", "assistant", ["in it, too"]),
        gpt_node("c", "c", "user", ["its own parent"]),
        gpt_node("d", "gone", "user", ["without a parent"]),
    ]
    chat = Read(write(tmp_path / "x.json", gpt_chat(nodes, current="nowhere"))).chat
    assert {m.text for m in chat.messages} == {"in a cycle", "in it, too", "its own parent", "without a parent"}
    known = {""}
    for message in chat.messages:
        assert message.parent in known, "parents come first, so there are no cycles"
        known.add(message.id)


def test_a_row_of_many_messages_needs_no_recursion(tmp_path: Path) -> None:
    n = 20_000
    nodes = [gpt_node(str(i), str(i - 1), "user" if i % 2 == 0 else "assistant", [f"m{i}"]) for i in range(n)]
    chat = Read(write(tmp_path / "x.json", gpt_chat(nodes))).chat
    assert len(shown(chat)) == n


def test_ids_that_occur_twice_are_two_messages(tmp_path: Path) -> None:
    chat = Read(write(tmp_path / "x.json", claude_like(["same", "same", "", ""]))).chat
    assert len({m.id for m in chat.messages}) == 4


# --- values


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (float("nan"), None), (float("inf"), None), (-1, None), (0, None), (10**400, None), (True, None), ("x", None),
        ([], None), (AT, AT), (AT * 1e3, AT), (AT * 1e6, AT), (int(AT) * 10**9, AT), ("2023-11-14T22:13:20Z", AT),
        ("2023-11-14T22:13:20", AT), ("0001-01-01T00:00:00+14:00", None),
    ],
)  # fmt: skip
def test_times_of_any_kind(value: Any, wanted: float | None) -> None:
    assert seconds(value) == (None if wanted is None else pytest.approx(wanted))


def test_lone_surrogates_and_zero_bytes_can_be_stored(tmp_path: Path) -> None:
    chat = Read(write(tmp_path / "x.json", simple_gpt_chat(text="a\ud800b\x00c", title="\udfff"))).chat
    write_json(tmp_path / "ours.json", [chat])
    assert parsed((tmp_path / "ours.json").read_bytes())[0].messages[0].text == "a\ufffdb\x00c"


def test_random_changes_never_raise_and_what_is_read_can_be_stored(tmp_path: Path) -> None:
    """Any value is replaced by any other: what comes out passes the check of Hearth's own files."""
    junk: list[Any] = [None, True, -1, 2**70, 1e999, float("nan"), "", "\ud800", "x" * 100, [], {}, [[]], [None],
                       {"type": "text"}, {"a": {"b": []}}, ["text"], [{"type": 7, "text": {}}]]  # fmt: skip
    shuffle = random.Random(5)
    samples = _samples()
    n_read = 0
    for _ in range(500):
        value = json.loads(json.dumps(shuffle.choice(samples)))
        for _ in range(shuffle.randint(1, 4)):
            _change(value, junk, shuffle)
        for reader in READERS:
            if reader.is_chat(value):
                with contextlib.suppress(SkippedChatError):
                    write_json(tmp_path / "ours.json", [reader.chat(value, LeftOut())])
                    n_read += len(parsed((tmp_path / "ours.json").read_bytes()))
    assert n_read > 300, "most chats are read in spite of a wrong value"


def _samples() -> list[Any]:
    from test_import_formats import claude_chat, lm_studio_chat

    webui = {"id": "w", "title": "t", "chat": {"history": {"currentId": "a", "messages": {
        "q": {"role": "user", "content": "x", "files": [{"type": "file", "file": {"data": {"content": "c"}}}]},
        "a": {"parentId": "q", "role": "assistant", "content": [{"type": "text", "text": "y"}]}}}}}  # fmt: skip
    nodes = [
        gpt_node("q", "root", "user", ["x", {"content_type": "image_asset_pointer"}]),
        gpt_node("c", "q", "assistant", [], recipient="python", content={"content_type": "code", "text": '{"a": 1}'}),
        gpt_node("o", "c", "tool", [], content={"content_type": "execution_output", "text": "1"}),
        gpt_node("t", "o", "assistant", [], content={"content_type": "thoughts", "thoughts": [{"content": "z"}]}),
    ]
    return [gpt_chat(nodes), claude_chat(), webui, lm_studio_chat()]


def _change(value: Any, junk: list[Any], shuffle: random.Random) -> None:
    """Replace one value somewhere inside."""
    at = value
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return
        key = shuffle.choice(keys)
        inner = at[key]
        if isinstance(inner, dict | list) and inner and shuffle.random() < 0.85:
            at = inner
            continue
        at[key] = copy.deepcopy(shuffle.choice(junk))
        return


@pytest.mark.parametrize("version", [12, 9, 4])
def test_random_bytes_in_a_file_of_gpt4all_never_raise(tmp_path: Path, version: int) -> None:
    shuffle, good = random.Random(version), gpt4all_chat(version)
    path = tmp_path / "x.chat"
    for _ in range(400):
        data = bytearray(good)
        for _ in range(shuffle.randint(1, 6)):
            data[shuffle.randrange(8, len(data))] = shuffle.choice((0, 1, 0x7F, 0xFF, shuffle.randrange(256)))
        path.write_bytes(data[: shuffle.randint(9, len(data))] if shuffle.random() < 0.3 else data)
        read = Read(path)
        assert len(read.chats) + read.skipped.total() == 1


def test_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    (tmp_path / "x.chat").write_bytes(gpt4all_chat())
    tracemalloc.start()
    try:
        assert Read(tmp_path / "x.chat").chats
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_other_versions_of_gpt4all_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "x.chat"
    for version in (1, 13, -5):
        path.write_bytes(gpt4all_chat()[:4] + version.to_bytes(4, "big", signed=True) + gpt4all_chat()[8:])
        assert Read(path).skipped == {"version": 1}


def test_arguments_of_any_depth_and_size_are_bounded(tmp_path: Path) -> None:
    deep: Any = "end"
    for _ in range(100):
        deep = {"in": [deep]}
    for given in (deep, {"big": "x" * 2_000_000}, {"n": 2**80, "f": float("inf")}, [1], "text", 7):
        value = claude_like(["q"])
        value["chat_messages"].append({"sender": "assistant", "content": [
            {"type": "tool_use", "name": "t", "input": given}]})  # fmt: skip
        chat = Read(write(tmp_path / "x.json", value)).chat
        write_json(tmp_path / "ours.json", [chat])
        assert parsed((tmp_path / "ours.json").read_bytes())


# --- files


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", b" " * (100 << 20))
    with pytest.raises(ImportFailedError) as told:
        Read(path)
    assert told.value.why == "zip-bomb"


def test_a_zip_file_that_lies_about_its_size_ends_there(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([simple_gpt_chat(f"c{n}") for n in range(50)]))
        archive.writestr("sub/conversations.json", json.dumps([simple_gpt_chat("other")]))
    data = path.read_bytes()
    broken = bytearray(data)
    broken[200:260] = bytes(60)
    path.write_bytes(broken)
    read = Read(path)
    assert read.cut >= 1
    assert [c.conversation.title for c in read.chats], "the other file is read"


def test_a_protected_zip_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", "[]")
    data = bytearray(path.read_bytes())
    data[6] |= 1  # the flag of an encrypted file, in both headers
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(ImportFailedError) as told:
        Read(path)
    assert told.value.why == "locked"


@pytest.mark.skipif(os.name == "nt", reason="links and pipes")
def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    elsewhere = write(tmp_path / "elsewhere" / "conversations.json", [simple_gpt_chat()])
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "conversations.json").symlink_to(elsewhere)
    (folder / "again").symlink_to(folder)
    os.mkfifo(folder / "x.chat")
    with pytest.raises(ImportFailedError):
        Read(folder)
    with pytest.raises(ImportFailedError):
        Read(folder / "x.chat")


def test_a_folder_of_too_many_files_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_FILES", 5)
    for n in range(7):
        write(tmp_path / f"{n}.conversation.json", {})
    with pytest.raises(ImportFailedError) as told:
        Read(tmp_path)
    assert told.value.why == "many"
