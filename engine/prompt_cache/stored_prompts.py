"""Save a chat's KV cache and recurrent state to the prompt cache, and restore them.

Reading is worthwhile only if it is faster than computing. Both are measured: each file records the seconds that one
token took to compute, and `restore` stops reading as soon as reading is slower.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

import engine
from engine.config import ModelConfig
from engine.errors import HostMemoryError
from engine.job import Job
from engine.model.kv_cache import KVCache
from engine.model.model_files import OpenedModel
from engine.prompt_cache.block_file import BLOCK_TOKENS, INSTRUCTIONS, Header, key_of
from engine.prompt_cache.store import Block, PromptStore
from native_kernels.backend import F32, U8

log = logging.getLogger(__name__)

FEWEST_TOKENS = 64  # fewer are computed, and not stored
TRIED = 8  # blocks that are read before their rate is compared
READERS = min(8, os.cpu_count() or 1)  # each checks 1 to 2 GB/s


def can_keep(config: ModelConfig) -> bool:
    """Return whether a token's keys and values depend on nothing but the tokens before it, once they are computed."""
    return config.rope_scaling is None or config.rope_scaling.kind != "dynamic"


def first_key(opened: OpenedModel, codec: str, mode: str) -> str:
    """Return the key before a prompt's first block: of all that keys and values depend on besides the tokens."""
    made_of = "\n".join([engine.__version__, opened.fingerprint, codec, mode, repr(opened.config)])
    return hashlib.blake2b(made_of.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class _Found:
    """A stored beginning of a prompt.

    blocks: names of the blocks of its `length` tokens. state: name of the recurrent state at its end, or None.
    """

    length: int
    blocks: list[str]
    state: str | None


class StoredPrompts:
    """The prompt cache of one model. Use it only from the thread that answers. Raises only GPU and RAM errors."""

    def __init__(self, store: PromptStore, opened: OpenedModel, codec: str) -> None:
        self._store, self._opened, self._codec = store, opened, codec
        self._roots: dict[str, str] = {}
        self._largest = 0  # bytes of a block so far
        self.token_s = 0.0  # to compute one token of a prompt, as measured last; 0: not yet

    def restore(self, cache: KVCache, have: int, prompt: Sequence[int], mode: str, job: Job = Job()) -> int:
        """Read the longest stored beginning of the prompt, if it is longer than the `have` tokens in the cache.

        The cache must be cut to them. At least the last token is left to be computed. Returns the tokens read.
        """
        prompt = list(prompt)
        found = self._find(cache, prompt, mode)
        if found is None or found.length - have < FEWEST_TOKENS or found.length > cache.capacity:
            return 0
        state = None
        if found.state is not None:
            state = self._state(cache, found.state)
            if state is None:
                return 0
        first = have // BLOCK_TOKENS
        cache.expect(found.length)
        began, done, length = time.perf_counter(), 0, have
        names = found.blocks[first:]
        with (
            cache.staging(READERS if len(names) > READERS else 0, BLOCK_TOKENS) as stage,
            contextlib.closing(self._read(names, stage)) as blocks,
        ):
            for number, read in enumerate(blocks, first):
                at = number * BLOCK_TOKENS
                if job.cancelled() or read is None:
                    break
                header, data = read
                if not cache.put_positions(at, len(header.tokens), data, header.forms):
                    log.warning("A block of the prompt cache does not fit this model's cache.")
                    break
                length = min(at + len(header.tokens), found.length)
                done = length - have
                spent = time.perf_counter() - began
                if number - first >= TRIED and 0 < header.token_s * done < spent:
                    log.info("The prompt is computed: reading %d tokens took %.2f s.", done, spent)
                    break
        lacks_window = cache.local_first > cache.first_needed(length)
        if length <= have or (length < found.length and (cache.recurs or lacks_window)):
            cache.drop_run()
            return 0
        cache.restore(prompt[:length], len(prompt), state)
        return done

    def save(
        self, cache: KVCache, tokens: Sequence[int], chat: str, mode: str, n_instructions: int = 0
    ) -> Iterator[bool]:
        """Keep the cache's tokens, one block for each step of the iterator. Stop it before the cache changes.

        n_instructions: tokens at the beginning with which other chats begin too. The last snapshot in them is kept.

        A step yields whether the store had room for its block; otherwise the next one tries the block again. It ends
        early if there will be no room: RAM is full, and nothing can be written.
        """
        length = min(cache.length, len(tokens))
        if length < FEWEST_TOKENS or not chat:
            return
        tokens = list(tokens[:length])
        parents = [self._root(mode, cache.sequence_length)]
        for first, header in self._blocks(cache, tokens, mode):
            parents.append(header.key)
            if not (yield from self._put(header, partial(cache.positions, first, len(header.tokens)), chat)):
                return
        if not cache.recurs:
            return
        first = max((n for n in cache.snapshots if n <= min(n_instructions, length)), default=0)
        states = {n: snapshot for n, snapshot in list(cache.snapshots.items())[-1:] if n <= length}
        if first:
            states[first] = cache.snapshots[first]
        if length == cache.length and length not in states:
            states[length] = cache.state()
        for n, state in states.items():
            full = n // BLOCK_TOKENS
            forms = INSTRUCTIONS if n == first else ""
            header = Header(parents[full], "state", tuple(tokens[full * BLOCK_TOKENS : n]), forms, self.token_s, 0)
            if n >= FEWEST_TOKENS:
                yield from self._put(header, partial(_copied, state), chat)

    def save_windows(self, cache: KVCache, tokens: Sequence[int], chat: str, mode: str) -> None:
        """Keep what layers with a window need after these tokens, with which other chats begin too, before they forget.

        tokens: all of the cache's, a whole number of blocks. Does nothing if RAM is short. Raises: CudaError.
        """
        start = cache.first_needed(len(tokens)) // BLOCK_TOKENS * BLOCK_TOKENS
        if not chat or "-" in cache.forms(start):
            return
        needed = (block for block in self._blocks(cache, tokens, mode) if block[0] >= start)
        try:
            for first, header in needed:
                if not all(self._put(header, partial(cache.positions, first, len(header.tokens)), chat)):
                    return
        except HostMemoryError as error:
            log.info("The end of the instructions is not kept: %s", error.message)

    def _blocks(self, cache: KVCache, tokens: Sequence[int], mode: str) -> Iterator[tuple[int, Header]]:
        """Yield the first position and the header of each block of the tokens, in order."""
        parent = self._root(mode, cache.sequence_length)
        for first in range(0, len(tokens), BLOCK_TOKENS):
            own = tuple(tokens[first : first + BLOCK_TOKENS])
            header = Header(parent, "kv", own, cache.forms(first), self.token_s, 0)
            yield first, header
            parent = header.key

    def _put(self, header: Header, copy: Callable[[], U8], chat: str) -> Generator[bool, None, bool]:
        """Yield as `save` does; return whether it is stored. It replaces one that lacks windows if it has them."""
        is_no_better = "-" in header.forms or "-" not in self._forms(header.parent, header.name)
        if is_no_better and self._store.has(header.name):
            self._store.share(header.name, chat)
            return True
        while not self._store.has_room(self._largest, chat):
            if not self._store.is_writing:
                return False
            yield False
        data = copy()
        self._largest = max(self._largest, data.nbytes)
        while not self._store.put(Block(replace(header, data_bytes=data.nbytes), data, chat)):
            if not self._store.is_writing:
                return False
            yield False
        yield True
        return True

    def _root(self, mode: str, sequence_length: int) -> str:
        scaling = self._opened.config.rope_scaling
        is_long = scaling is not None and scaling.kind == "longrope" and sequence_length > scaling.original_context
        kind = f"{mode} long" if is_long else mode
        if kind not in self._roots:
            self._roots[kind] = first_key(self._opened, self._codec, kind)
        return self._roots[kind]

    def _find(self, cache: KVCache, prompt: list[int], mode: str) -> _Found | None:
        limit = min(len(prompt) - 1, cache.capacity)
        parents, blocks, end = [self._root(mode, len(prompt))], list[str](), 0
        while True:
            rest = tuple(prompt[end : min(end + BLOCK_TOKENS, limit)])
            key = key_of(parents[-1], "kv", rest)
            if len(rest) == BLOCK_TOKENS and self._store.has(f"{parents[-1]}-{key}"):
                blocks.append(f"{parents[-1]}-{key}")
                parents.append(key)
                end += BLOCK_TOKENS
                continue
            kept = [header for header in self._store.after(parents[-1]) if header.kind == "kv"]
            shared = {header.name: shared_length(header.tokens, rest) for header in kept}
            best = max(shared, key=shared.__getitem__, default="")
            if shared.get(best):
                blocks.append(best)
                end += shared[best]
            break
        if not cache.recurs:
            end = self._with_windows(cache, parents, blocks, end)
            return _Found(end, blocks[: -(-end // BLOCK_TOKENS)], None) if end else None
        for full in reversed(range(len(parents))):
            start = full * BLOCK_TOKENS
            states = {header.name: len(header.tokens) for header in self._store.after(parents[full])
                      if header.kind == "state" and start + len(header.tokens) <= end
                      and header.tokens == tuple(prompt[start : start + len(header.tokens)])}  # fmt: skip
            if states:
                state = max(states, key=states.__getitem__)
                length = start + states[state]
                return _Found(length, blocks[: -(-length // BLOCK_TOKENS)], state)
        return None

    def _with_windows(self, cache: KVCache, parents: list[str], blocks: list[str], end: int) -> int:
        """Return the greatest length up to `end` whose blocks have all that layers with a window need."""
        at = len(blocks) - 1
        while at >= 0 and (at + 1) * BLOCK_TOKENS > cache.first_needed(end):
            end = at * BLOCK_TOKENS if "-" in self._forms(parents[at], blocks[at]) else end
            at -= 1
        return end

    def _forms(self, parent: str, name: str) -> str:
        """Return the forms of a block, as in its header; "-" if there is none."""
        return next((one.forms for one in self._store.after(parent) if one.name == name), "-")

    def _state(self, cache: KVCache, name: str) -> F32 | None:
        found = self._store.read(name)
        size = int(np.prod(cache.state_shape)) * 4
        if found is None or found[1].nbytes != size:
            return None
        return np.frombuffer(found[1].tobytes(), np.float32).reshape(cache.state_shape)

    def _read(
        self, names: list[str], stage: Callable[[int, U8], U8]
    ) -> Generator[tuple[Header, U8] | None, None, None]:
        """Yield the blocks of these names; None for one that cannot be used. READERS - 1 are read and staged ahead."""

        def staged(number: int) -> tuple[Header, U8] | None:
            found = self._store.read(names[number])
            return None if found is None else (found[0], stage(number, found[1]))

        with ThreadPoolExecutor(READERS, "prompt-cache-read") as pool:
            ahead: deque[Future[tuple[Header, U8] | None]] = deque()
            for number in range(len(names)):
                while len(ahead) < READERS and number + len(ahead) < len(names):
                    ahead.append(pool.submit(staged, number + len(ahead)))
                yield ahead.popleft().result()


def shared_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the common prefix."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _copied(state: F32) -> U8:
    return np.array(state).reshape(-1).view(np.uint8)
