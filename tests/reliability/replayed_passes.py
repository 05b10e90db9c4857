"""An engine that records its forward passes, and another that repeats them and compares every bit.

    python tests/reliability/replayed_passes.py JOURNAL [eager]     (`python -m engine host`, recorded in JOURNAL)

Prefill and decode round differently, so only passes of the same kind give the same bits. The journal has a line for
each pass and each change of the session's KV cache, and hashes of logits and of what the prompt cache stores and reads.
eager: guesses are computed whether they pay or not.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.prompt_cache.store import Block, PromptStore
from engine.session import generate
from engine.session.chat_session import ChatSession
from engine.session.guesses import StepTimes
from engine.session.loaded_model import LoadedModel
from native_kernels import kv_blocks


def hash_of(data: Any) -> str:
    return hashlib.blake2b(np.ascontiguousarray(data), digest_size=16).hexdigest()


def hash_of_positions(cache: KVCache, n_positions: int, data: Any, forms: str) -> str:
    """Return the hash of what KVCache.positions returned, without what follows the last position in its block."""
    rows, at = [np.frombuffer(forms.encode(), np.uint8)], 0
    for layer, size in zip(cache._storing, cache._piece_sizes(forms, n_positions), strict=True):
        layout, heads = cache._shape(layer)
        blocks = np.ascontiguousarray(data[at : at + size]).reshape(heads, -1, layout.block_bytes)
        rows.append(kv_blocks.to_rows(blocks, layout, n_positions))
        at += size
    return hash_of(np.concatenate(rows))


class Recorder:
    """Records the session of this process: the outermost calls with its cache, after they have ended."""

    def __init__(self, journal: Path) -> None:
        self._file = os.open(journal, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._cache: KVCache | None = None
        self._is_within = False

    def write(self, *entry: object) -> None:
        os.write(self._file, json.dumps(entry, default=int).encode() + b"\n")

    def wrap(self, owner: Any, name: str, given: Callable[..., tuple[object, ...]], written: str = "") -> None:
        """Record calls as `written`, by default the name, and given(result, *arguments)."""
        real = getattr(owner, name)

        def call(*arguments: Any, **more: Any) -> Any:
            if self._is_within or self._cache is None or not any(one is self._cache for one in arguments):
                return real(*arguments, **more)
            self._is_within = True
            try:
                result = real(*arguments, **more)
                self.write(written or name, *given(result, *arguments, **more))
            except BaseException as error:
                self.write("failed", name, repr(error))
                raise
            finally:
                self._is_within = False
            return result

        setattr(owner, name, call)

    def install(self) -> None:
        make, put = ChatSession._new_cache, PromptStore.put

        def new_cache(session: ChatSession) -> KVCache:
            self._cache = make(session)
            self.write("new_cache")
            return self._cache

        def put_block(store: PromptStore, block: Block) -> bool:
            if block.header.kind == "state":
                self.write("store_state", hash_of(block.data))
            return put(store, block)

        ChatSession._new_cache, PromptStore.put = new_cache, put_block  # type: ignore[method-assign]
        for name in ("truncate", "remember", "drop_run", "expect"):
            self.wrap(KVCache, name, lambda result, cache, *given: given)
        self.wrap(KVCache, "positions", lambda data, cache, first, n: (
            first, n, hash_of_positions(cache, n, data, cache.forms(first))))  # fmt: skip
        self.wrap(KVCache, "put_positions", lambda fits, cache, first, n, data, forms: (
            first, n, forms, fits, hash_of_positions(cache, n, data, forms)))  # fmt: skip
        self.wrap(KVCache, "restore", lambda result, cache, tokens, length, state=None: (
            tokens, length, "" if state is None else hash_of(state)))  # fmt: skip
        self.wrap(Transformer, "prefill", lambda hidden, model, ids, cache, ahead=0, progress=None, remembered=0: (
            ids.tolist(), ahead, remembered))  # fmt: skip
        self.wrap(generate, "decode_one_token", lambda logits, model, token, cache, cancelled=None: (
            [token], [hash_of(logits)]), "decode")  # fmt: skip
        self.wrap(generate, "decode_tokens", lambda logits, model, tokens, cache, cancelled=None: (
            tokens, [*map(hash_of, logits)]), "decode")  # fmt: skip


class Replay:
    """Repeats recorded passes in an engine that is never killed, and restores only what it computed itself.

    best: its greedy choice after each decoded position. faults: all differences, in words.
    """

    def __init__(self, model: LoadedModel) -> None:
        self.faults: list[str] = []
        self.best: dict[int, int] = {}
        self.rows = self.restored = 0  # of logits compared, and tokens
        self._model, self._transformer = model, model.transformer()
        self._stored: dict[str, tuple[Any, list[int]]] = {}  # data by hash, with all tokens up to their end
        self._put: list[tuple[int, int, str]] = []  # blocks put since the last `restore`
        self._within: dict[int, Any] = {}  # states after each token of the last run

    def go_on(self, lines: Sequence[bytes]) -> None:
        """Repeat these lines. The last run of an answer and what is cut off after it must not be parted."""
        entries = [json.loads(line) for line in lines]
        for (name, *given), (after, *cut) in zip(entries, [*entries[1:], [""]], strict=False):
            if name == "decode":
                self.decode(*given, cut[0] if after == "truncate" else None)
            else:
                getattr(self if hasattr(self, name) else self._cache, name)(*given)

    def expect_equal(self, found: object, wanted: object, what: str) -> None:
        if found != wanted:
            self.faults.append(f"{what}: {found!r:.200} instead of {wanted!r:.200}")

    def failed(self, name: str, error: str) -> None:
        self.faults.append(f"{name}: {error}")

    def new_cache(self) -> None:
        self._cache = self._model.new_cache()

    def prefill(self, ids: list[int], ahead: int, remembered: int) -> None:
        self._transformer.prefill(np.array(ids, np.int64), self._cache, ahead, remembered=remembered)

    def decode(self, tokens: list[int], hashes: list[str], length: int | None) -> None:
        """Repeat a run token by token, for guesses must change nothing. length: to which the cache is cut then."""
        first = self._cache.length
        self._cache.make_room(len(tokens))
        self._within.clear()
        for at, (token, wanted) in enumerate(zip(tokens, hashes, strict=True), start=first):
            if length is not None and first < length <= at:
                return
            row = generate.decode_one_token(self._transformer, token, self._cache)
            self.best[at] = int(np.argmax(row))
            self.expect_equal(hash_of(row), wanted, f"logits at {at}, run from {first}")
            self.rows += 1
            self._within[at + 1] = self._cache.state().copy()

    def truncate(self, length: int) -> None:
        if is_within := self._cache.reusable(length) != length and length in self._within:
            self._cache.keep(length, self._within[length])
        self._cache.truncate(length)
        if is_within:
            del self._cache.snapshots[length]

    def positions(self, first: int, n: int, wanted: str) -> None:
        data = self._cache.positions(first, n)
        self.expect_equal(self._hash(first, n), wanted, f"stored {first} to {first + n}")
        self._stored[wanted] = data, self._cache.tokens[: first + n].tolist()

    def store_state(self, wanted: str) -> None:
        states = {**self._cache.snapshots, self._cache.length: self._cache.state()}
        for n, state in states.items():
            self._stored[hash_of(state)] = state.copy(), self._cache.tokens[:n].tolist()
        self.expect_equal(wanted in self._stored, True, "a stored state is known")

    def put_positions(self, first: int, n: int, forms: str, fits: bool, hash_: str) -> None:
        self._put.append((first, n, hash_))
        self.expect_equal(self._cache.put_positions(first, n, self._stored[hash_][0], forms), fits, "a block fits")

    def restore(self, tokens: list[int], sequence_length: int, state: str) -> None:
        """Restore; tokens and data must be those that were stored, as they are read back."""
        for first, n, hash_ in self._put:
            end = min(first + n, len(tokens))
            self.expect_equal(self._stored[hash_][1][:end], tokens[:end], f"tokens of {first} to {first + n}")
            if first >= self._cache.local_first:
                self.expect_equal(self._hash(first, n), hash_, f"restored {first} to {first + n}")
        data, before = self._stored[state] if state else (None, tokens)
        self.expect_equal(before, tokens, "tokens of a state")
        self.restored += len(tokens) - self._cache.length
        self._put.clear()
        self._cache.restore(tokens, sequence_length, data)

    def _hash(self, first: int, n: int) -> str:
        return hash_of_positions(self._cache, n, self._cache.positions(first, n), self._cache.forms(first))


if __name__ == "__main__":
    Recorder(Path(sys.argv[1])).install()
    if sys.argv[2:] == ["eager"]:
        StepTimes.of = lambda self, n_tokens: self.one_s  # type: ignore[method-assign]
        StepTimes.lost_too_much = False  # type: ignore[assignment]
    sys.argv[1:] = ["host"]
    runpy.run_module("engine", run_name="__main__")
