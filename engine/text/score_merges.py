"""SentencePiece's scores as a list of merges, by which the tokenizers library joins pieces.

gguf_vocabulary.py builds the tokenizer. Pieces are looked up by hashes of all their prefixes and suffixes at once in
NumPy, because a vocabulary of 256,000 pieces has millions of cuts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFormatError

MAX_PIECE_CHARS = 1024  # SentencePiece's longest has 16 by default; each is tried at every cut
_BATCH_CHARS = 1 << 18  # of the pieces that are cut at a time: bounds memory, and stays in the CPU's cache
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64
_TABLE_BITS = 22

_U64 = NDArray[np.uint64]
_I64 = NDArray[np.int64]


def merges_from_scores(
    tokens: list[str], scores: Sequence[float] | NDArray[np.float64], mergeable: list[int]
) -> list[tuple[str, str]]:
    """Return the merges that join pieces in the order of their scores, the best first.

    A piece can be joined from several pairs; all are listed, the longest left part first, because SentencePiece joins
    equal scores from the left.

    Cost: O(characters of all pieces); 256,000 pieces take about 0.3 s. Raises: ModelFormatError for an implausibly long
    piece.
    """
    order = np.asarray(mergeable, np.int64)
    order = order[np.argsort(-np.asarray(scores, np.float64)[order], kind="stable")]
    texts = [text for i in order.tolist() if (text := tokens[i])]
    longest = max(map(len, texts), default=0)
    if longest > MAX_PIECE_CHARS:
        raise ModelFormatError(f"A piece of the vocabulary has {longest} characters.")
    if not texts:
        return []
    powers, inverses = (_powers(base) for base in (_BASE, pow(_BASE, -1, 1 << 64)))
    whole = np.concatenate([batch.between(batch.starts, batch.ends) for batch in _batches(texts, powers, inverses)])
    index = _Index(whole)
    merges: list[tuple[str, str]] = []
    for batch in _batches(texts, powers, inverses):
        n_cuts = batch.ends - batch.starts - 1
        piece = np.repeat(np.arange(n_cuts.size), n_cuts)
        # The position of a cut, counted from the piece's end.
        back = np.arange(piece.size) - np.repeat(np.cumsum(n_cuts) - n_cuts, n_cuts) + 1
        cuts = batch.ends[piece] - back
        left = index.find(batch.between(batch.starts[piece], cuts))
        kept = np.flatnonzero(left >= 0)
        left, cuts, ends = left[kept], cuts[kept], batch.ends[piece[kept]]
        right = index.find(batch.between(cuts, ends))
        kept = np.flatnonzero(right >= 0)
        pairs = (map(texts.__getitem__, side[kept].tolist()) for side in (left, right))
        merges += zip(*pairs, strict=True)
    return merges


class _Index:
    """Hashes of pieces -> their indices. Only a malicious file has two pieces with one hash; the tokenizers library
    then refuses it, since their join is not a piece.
    """

    def __init__(self, hashes: _U64) -> None:
        self._hashes = hashes
        self._table = np.full(1 << _TABLE_BITS, -1, np.int32)
        self._table[_slot(hashes)] = np.arange(hashes.size)
        # The table has one of the pieces with the same slot.
        lost = np.flatnonzero(self._table[_slot(hashes)] != np.arange(hashes.size))
        self._lost = lost[np.argsort(hashes[lost])]
        self._lost_hashes = hashes[self._lost]

    def find(self, hashes: _U64) -> _I64:
        """Return the index of each, or -1."""
        places = self._table[_slot(hashes)].astype(np.int64)
        others = np.flatnonzero((places >= 0) & (self._hashes[places] != hashes))
        if others.size:
            at = np.searchsorted(self._lost_hashes, hashes[others])
            at[at == self._lost.size] = 0
            places[others] = -1
            if self._lost.size:
                places[others] = np.where(self._lost_hashes[at] == hashes[others], self._lost[at], -1)
        return places


@dataclass(frozen=True)
class _Batch:
    """Concatenated pieces: where each starts and ends, and the sums for the hash of any range."""

    starts: _I64
    ends: _I64
    sums: _U64
    inverses: _U64

    def between(self, first: _I64, last: _I64) -> _U64:
        """Return a hash of the characters from first to last, independent of their position."""
        return (self.sums[last] - self.sums[first]) * self.inverses[first]


def _batches(texts: list[str], powers: _U64, inverses: _U64) -> Iterator[_Batch]:
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    group = np.cumsum(lengths) // _BATCH_CHARS
    edges = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(texts)]
    for a, b in itertools.pairwise(edges):
        ends = np.cumsum(lengths[a:b])
        raw = "".join(texts[a:b]).encode("utf-32-le", "surrogatepass")
        characters = np.frombuffer(raw, "<u4").astype(np.uint64) + np.uint64(1)
        sums = np.zeros(characters.size + 1, np.uint64)
        np.cumsum(characters * powers[: characters.size], out=sums[1:])
        yield _Batch(ends - lengths[a:b], ends, sums, inverses)


def _powers(base: int) -> _U64:
    powers = np.full(_BATCH_CHARS + MAX_PIECE_CHARS + 1, base, np.uint64)
    powers[0] = 1
    return np.multiply.accumulate(powers)


def _slot(hashes: _U64) -> _U64:
    mixed: _U64 = ((hashes ^ (hashes >> np.uint64(32))) * np.uint64(_BASE)) >> np.uint64(64 - _TABLE_BITS)
    return mixed
