"""Record each token of an answer while it is generated: probabilities, time, bytes, neurons and experts.

While the model decodes, only what would be lost is copied; everything else is computed at the end of the answer.
Recorded is what the engine knows: tokens that were computed in one run share their neurons and bytes, so these are
left out for them.
"""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.service import protocol
from engine.service.active_neurons import ActiveNeurons
from native_kernels.cpu.products.top_scores import TopScores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.gpu.weights.expert_slots import ExpertSlots
    from engine.session.chat_session import ChatSession
    from engine.session.generate import TokenEvent
    from native_kernels.backend import F32, I64

TOP = 8  # most likely tokens kept for each token
DIGITS = 6  # decimals of a probability
_LONGEST_RUN = 64  # tokens; a longer run is not one with guesses
_TOGETHER = 16  # tokens whose logits are searched at once: cheaper than code that has left the cache
_MOST_TOGETHER = 4 << 20  # bytes of such logits
MOST_VALUES = 1_000_000  # of all layers in a record, about 6 MB; a message may have 64 MB
_SAMPLES = 33  # positions of an answer at which the bytes of the KV cache are computed


_BY_LAYER = ("fired", "active", "experts", "missed")


def _n_values(row: dict[str, Any]) -> int:
    return len(row.get("fired", ())) + sum(len(ids) for ids in row.get("experts", ()) if ids)


def _as_text(bits: NDArray[np.uint8]) -> str:
    return base64.b64encode(bits.tobytes()).decode()


class _Noted(NamedTuple):
    """The copied values of one token. counts [L, 4]: sums of FfnCounters. experts: as protocol.Inspected has it."""

    token: int
    seconds: float
    counted: int
    counts: I64
    on_gpu: int | None
    experts: list[list[int] | None]
    missed: list[int]


class _Likely(NamedTuple):
    """The most likely tokens of one place. ids, logits [TOP]. logit: the chosen token's. total: see TopScores."""

    ids: I64
    logits: F32
    logit: float
    total: float


class Inspection:
    """The record of one answer. Call `token` for each event with a token, and `event` once at the end; then `close`."""

    def __init__(self, session: ChatSession, prompt: Sequence[int]) -> None:
        """prompt: the token ids before the answer."""
        self._session, self._prompt = session, list(prompt)
        self._rows: list[_Noted] = []
        self._likely: list[_Likely] = []  # of the first rows
        self._logits: F32 | None = None  # [n, V], of the rows after them
        self._best: TopScores | None = None
        self._slots: ExpertSlots | None = None
        self._heat: F32 | None = None
        self._active = ActiveNeurons(session)
        self._left = time.perf_counter()  # when the last token had been recorded

    def token(self, event: TokenEvent) -> None:
        """Record the token of an event. Cost: a copy of the logits, and a pass over those of several tokens at once."""
        assert event.logits is not None, "a token has logits"
        assert event.token_id is not None, "the event has a token"
        now = time.perf_counter()
        if self._logits is None:
            n = max(1, min(_TOGETHER, _MOST_TOGETHER // event.logits.nbytes))
            self._logits = np.empty((n, event.logits.size), np.float32)
        self._logits[len(self._rows) - len(self._likely)] = event.logits
        counters, gpu = self._session.transformer.executor.counters, self._session.model.gpu
        slots = None if gpu is None else gpu.expert_slots
        if slots is not self._slots:  # the model was placed again
            self._slots, self._heat = slots, None
        self._rows.append(
            _Noted(
                event.token_id,
                now - self._left,
                counters.tokens,
                counters.layers.copy(),
                counters.on_gpu,
                self._experts(),
                [] if self._slots is None else self._slots.missing.tolist(),
            )
        )
        self._active.note(len(self._rows) - 1)
        if len(self._rows) - len(self._likely) == len(self._logits):
            self._find_likely()
        self._left = time.perf_counter()

    def _find_likely(self) -> None:
        """Find the most likely tokens from the logits of the last rows."""
        if self._logits is None:
            return
        best = self._best = self._best or TopScores(min(TOP, self._logits.shape[1]))
        for one, logits in zip(self._rows[len(self._likely) :], self._logits, strict=False):
            best.find(logits)
            self._likely.append(_Likely(best.ids.copy(), best.scores.copy(), logits.item(one.token), best.total))

    def close(self) -> None:
        """Stop counting neurons for this record."""
        self._active.close()

    def event(self, request_id: str) -> protocol.Inspected:
        """Return everything that was recorded; of a very long answer, without the values of each layer."""
        self._active.ended()
        self._find_likely()
        rows, alone, active = self._likely_rows(), [], self._active.bits_of()
        for place, (before, one) in enumerate(zip(self._rows, self._rows[1:], strict=False), start=1):
            run = one.counted - before.counted
            if not 0 <= run <= _LONGEST_RUN:  # the whole context was computed again
                continue
            rows[place]["run"] = run
            if run == 1:
                alone.append((place, one.counts - before.counts, len(self._prompt) + place - 1))
                self._add_neurons(rows[place], before, one)
                if place in active and "fired" in rows[place]:
                    rows[place]["active"] = _as_text(active[place])
        if alone:
            places, counts, positions = zip(*alone, strict=True)
            read = self._bytes(np.stack(counts, axis=-1), positions)
            for place, n_bytes in zip(places, read.tolist(), strict=True):
                rows[place]["bytes"] = round(n_bytes)
        if sum(_n_values(row) for row in rows) > MOST_VALUES:
            for row in rows:
                for name in _BY_LAYER:
                    row.pop(name, None)
        spelt = self._session.model.tokenizer.token_bytes
        ids = {
            *self._prompt,
            *(token for one in self._likely for token in one.ids.tolist()),
            *(one.token for one in self._rows),
        }
        texts = {str(token): spelt(token).decode("utf-8", "backslashreplace") for token in sorted(ids)}
        hot, n_neurons = self._active.on_gpu(), self._session.model.opened.config.n_neurons
        return protocol.Inspected(
            request_id, self._prompt, rows, texts, n_neurons, "" if hot is None else _as_text(hot)
        )

    def _likely_rows(self) -> list[dict[str, Any]]:
        """Return the rows of all tokens, with their probabilities and times."""
        if not self._rows:
            return []
        scores = np.array([[*one.logits.tolist(), one.logit] for one in self._likely])
        totals = np.array([[one.total] for one in self._likely])
        found = (np.exp(scores - scores[:, :1]) / totals).round(DIGITS).tolist()
        return [
            {"id": one.token, "p": p[-1], "top": [list(pair) for pair in zip(top.ids.tolist(), p[:-1], strict=True)],
             "us": round(1e6 * one.seconds)}
            for one, top, p in zip(self._rows, self._likely, found, strict=True)
        ]  # fmt: skip

    def _add_neurons(self, row: dict[str, Any], before: _Noted, one: _Noted) -> None:
        model, counts = self._session.model, one.counts - before.counts
        if model.opened.config.has_zeros or model.resolve_mode(self._session.mode) == "sparse":
            row["fired"] = counts[:, 2].tolist()
        row["computed"] = int(counts[:, 0].sum())
        if one.on_gpu is not None:
            row["on_gpu"] = one.on_gpu - (before.on_gpu or 0)
        if any(one.experts):
            row["experts"] = one.experts
        if one.missed:
            row["missed"] = one.missed

    def _experts(self) -> list[list[int] | None]:
        """Return the experts of the last token of each layer."""
        if not self._session.model.opened.config.n_experts:
            return []
        decoder = self._session.transformer.decoder
        found = [] if decoder is None else [None if ids is None else ids.tolist() for ids in decoder.chosen_experts()]
        if self._slots is not None and found:  # each choice makes an expert hotter
            heat = self._slots.heat.copy()
            if self._heat is not None:
                for layer in np.flatnonzero(self._slots.counted):
                    found[layer] = np.flatnonzero(heat[layer] > self._heat[layer]).tolist()
            self._heat = heat
        return found

    def _bytes(self, counts: I64, positions: Sequence[int]) -> NDArray[np.float64]:
        """Return the bytes [T] that tokens read, from counts [L, 4, T] of FfnCounters."""
        from engine.evaluation.bench import bytes_beside_ffn
        from engine.executor.ffn_bytes import exact_bytes, ffn_bytes, sparse_bytes
        from engine.model.kv_cache import KVCache

        model, mode = self._session.model, self._session.model.resolve_mode(self._session.mode)
        config, weights = model.opened.config, model.weights
        shares, reached = counts / config.n_neurons, config.routed_share
        # The bytes of the cache grow linearly, or not at all beyond a window.
        sampled = np.unique(np.linspace(positions[0], positions[-1], _SAMPLES, dtype=np.int64))
        cached = [KVCache.bytes_read(config, position, model.kv_codec) for position in sampled.tolist()]
        found: NDArray[np.float64] = np.interp(positions, sampled, cached)
        found += bytes_beside_ffn(model, positions[0]) - cached[0]
        if mode == "sparse" and model.modes.predictor is not None:
            found += sum(sparse_bytes(weights, model.modes.predictor, shares, reached))
        elif mode == "exact":
            found += exact_bytes(weights, shares, reached)
        else:
            found += ffn_bytes(weights, reached, reached, reached, reached)
        return found
