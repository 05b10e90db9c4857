"""Files of the prompt cache: none is used that is damaged or foreign, and none outlives its chat or its quota."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.prompt_cache import store as store_module
from engine.prompt_cache.block_file import Header, Kind, key_of, read_block, read_header, write_block
from engine.prompt_cache.store import MOST_STATES, Block, PromptStore

ROOT = "0" * 32


def block(
    tokens: tuple[int, ...] = (1, 2, 3), parent: str = ROOT, kind: Kind = "kv", size: int = 1000, chat: str = "chat"
) -> Block:
    data = np.random.default_rng(sum(tokens)).integers(0, 256, size).astype(np.uint8)
    return Block(Header(parent, kind, tokens, "b" if kind == "kv" else "", 0.01, size), data, chat)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Any]:
    made: list[PromptStore] = []

    def make(quota_bytes: int = 1 << 20, ram_bytes: int = 1 << 20) -> PromptStore:
        made.append(PromptStore(tmp_path / "prompts", quota_bytes, ram_bytes))
        return made[-1]

    yield make
    for one in made:
        one.close(10)


def written(store: PromptStore, *blocks: Block) -> PromptStore:
    for one in blocks:
        store.put(one)
        store.flush()
    return store


def on_disk(store: PromptStore) -> set[str]:
    return {path.stem for path in store.root.glob("*.kv")}


def test_a_block_is_read_back_after_a_restart(stores: Any) -> None:
    one = block()
    written(stores(), one)
    again = stores()
    assert again.has(one.header.name)
    assert again.after(ROOT) == [one.header]
    found = again.read(one.header.name)
    assert found is not None
    assert found[0] == one.header
    assert np.array_equal(found[1], one.data)


@pytest.mark.skipif(sys.platform == "win32", reason="the user's folders are private there")
def test_nobody_else_can_read_it(stores: Any) -> None:
    store = written(stores(), block())
    for path in [store.root, store.root / "chats"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    files = [path for path in store.root.rglob("*") if path.is_file()]
    assert len(files) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


@pytest.mark.parametrize("n_bits", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_flipped_bit_is_accepted(tmp_path: Path, n_bits: int) -> None:
    one, rng = block(), np.random.default_rng(7)
    path = tmp_path / f"{one.header.name}.kv"
    write_block(path, one.header, one.data)
    whole = path.read_bytes()
    assert read_block(path) is not None
    accepted = 0
    for bit in rng.integers(0, 8 * len(whole), n_bits):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(damaged)
        accepted += read_block(path) is not None
        read_header(path)  # raises nothing
    assert accepted == 0


def test_no_cut_grown_or_renamed_file_is_accepted(tmp_path: Path) -> None:
    one = block()
    path = tmp_path / f"{one.header.name}.kv"
    write_block(path, one.header, one.data)
    whole = path.read_bytes()
    for content in [whole[:n] for n in range(0, len(whole), 37)] + [whole + b"\0", b"", b"HearthP1" + b"\xff" * 40]:
        path.write_bytes(content)
        assert read_block(path) is None
    elsewhere = path.with_name(f"{'1' * 32}-{one.header.key}.kv")
    elsewhere.write_bytes(whole)
    assert read_block(elsewhere) is None
    assert read_header(elsewhere) is None


@pytest.mark.expects_log("A damaged file of the prompt cache is deleted")
def test_a_damaged_file_is_deleted_and_not_tried_again(stores: Any) -> None:
    one = block()
    path = written(stores(), one).root / f"{one.header.name}.kv"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    again = stores()
    assert again.read(one.header.name) is None
    assert not path.exists()
    assert not again.has(one.header.name)


def test_a_file_that_vanished_is_no_error(stores: Any) -> None:
    one = block()
    written(stores(), one)
    again = stores()
    (again.root / f"{one.header.name}.kv").unlink()
    assert again.after(ROOT) == []
    assert again.read(one.header.name) is None


def test_the_least_recently_used_files_go_first(stores: Any) -> None:
    blocks = [block((n,), size=1000) for n in range(1, 5)]
    store = written(stores(quota_bytes=4000), *blocks[:3])
    for age, one in enumerate(reversed(blocks[:3])):
        os.utime(store.root / f"{one.header.name}.kv", (1000 - age, 1000 - age))
    again = stores(quota_bytes=4000)
    assert again.read(blocks[0].header.name) is not None  # the oldest is used
    written(again, blocks[3])
    assert on_disk(again) == {one.header.name for one in (blocks[0], blocks[2], blocks[3])}
    again.set_quota(1500)
    assert len(on_disk(again)) == 1
    again.set_quota(0)
    assert not on_disk(again)


def test_deleting_a_chat_deletes_what_only_it_used(stores: Any) -> None:
    shared, own, other = block((1,)), block((2,)), block((3,), chat="other")
    store = written(stores(), shared, replace(shared, chat="other"), own, other)
    store.keep_only(["other"])
    assert on_disk(store) == {shared.header.name, other.header.name}
    assert not store.has(own.header.name)
    store.keep_only([])
    assert not on_disk(store)
    assert not list((store.root / "chats").iterdir())


def test_a_chat_that_is_deleted_while_it_is_written_leaves_nothing(
    stores: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, begun, go_on, real = stores(), threading.Event(), threading.Event(), store_module.write_block

    def slow(path: Path, *arguments: Any) -> None:
        path.with_suffix(".part").touch()  # what a deletion must not take away meanwhile
        begun.set()
        go_on.wait(30)
        assert path.with_suffix(".part").exists()
        real(path, *arguments)

    monkeypatch.setattr(store_module, "write_block", slow)
    store.put(block())
    assert begun.wait(30)
    deleting = threading.Thread(target=store.keep_only, args=(["other"],))
    deleting.start()
    time.sleep(0.05)
    go_on.set()
    deleting.join(30)
    monkeypatch.setattr(store_module, "write_block", real)
    assert not [path for path in store.root.rglob("*") if path.is_file()]
    written(store, block(chat="other"))
    assert len(on_disk(store)) == 1, "writing goes on"


def test_a_chat_that_is_deleted_while_it_waits_is_not_written(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store, go_on, real = stores(), threading.Event(), store_module.write_block
    monkeypatch.setattr(store_module, "write_block", lambda *arguments: (go_on.wait(30), real(*arguments)))
    store.put(block(chat="other"))
    store.put(block((5,)))
    deleting = threading.Thread(target=store.keep_only, args=(["other"],))
    deleting.start()
    time.sleep(0.05)
    go_on.set()
    deleting.join(30)
    store.flush()
    assert on_disk(store) == {block(chat="other").header.name}
    store.keep_only(["other", "chat"])  # restored from the bin
    assert len(on_disk(written(store, block((6,))))) == 2


def test_a_longer_end_of_a_chat_replaces_the_shorter_one(stores: Any) -> None:
    short, long, branch = block((1, 2)), block((1, 2, 3)), block((1, 4, 5))
    store = written(stores(), short, branch, long)
    assert on_disk(store) == {long.header.name, branch.header.name}
    another = written(store, replace(short, chat="other"), block((1, 2, 3, 4)))
    assert short.header.name in on_disk(another), "the other chat ends there"


def test_a_chat_keeps_its_newest_states(stores: Any) -> None:
    states = [block((n,), kind="state") for n in range(MOST_STATES + 2)]
    store = written(stores(), *states)
    assert on_disk(store) == {one.header.name for one in states[-MOST_STATES:]}


@pytest.mark.expects_log("No space left on device")
def test_a_full_disk_ends_the_writing_and_nothing_else(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_module, "write_block", full)
    store = written(stores(), block())
    assert not on_disk(store)
    assert store.read(block().header.name) is not None, "from RAM"


def test_some_of_the_disk_stays_free(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "FREE_DISK_BYTES", 1 << 60)
    assert not on_disk(written(stores(), block()))


def test_ram_holds_no_more_than_it_may_and_a_chat_keeps_its_beginning(stores: Any) -> None:
    store = stores(ram_bytes=3000, quota_bytes=0)  # nothing is written
    blocks = [block((n,)) for n in range(4)]
    assert [store.put(one) for one in blocks] == [True, True, True, False]
    assert not store.has_room(1000, "chat")
    assert store.has_room(3000, "other")
    assert store.put(block((9,), chat="other"))
    assert [store.has(one.header.name) for one in blocks] == [False, True, True, False]


def test_blocks_that_wait_for_the_disk_stay_and_written_ones_go(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, real = threading.Event(), store_module.write_block
    monkeypatch.setattr(store_module, "write_block", lambda *arguments: (go_on.wait(30), real(*arguments)))
    store = stores(ram_bytes=2000)
    blocks = [block((n,)) for n in range(3)]
    assert [store.put(one) for one in blocks] == [True, True, False]
    go_on.set()
    store.flush()
    assert store.put(blocks[2])
    store.flush()
    assert on_disk(store) == {one.header.name for one in blocks}


def test_keys_depend_on_all_that_comes_before() -> None:
    kinds: tuple[Kind, ...] = ("kv", "state")
    keys = {
        key_of(parent, kind, tokens) for parent in (ROOT, "1" * 32) for kind in kinds for tokens in ((), (1,), (2,))
    }
    assert len(keys) == 12
