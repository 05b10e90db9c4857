"""Live figures of the model, emitted a few times a second while the window watches, and not at all otherwise.

They come from the executors' counters and from the stage times of a token's program. Only a sample of neurons is
checked for activity during one token.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.machine.cpu_and_ram import disk_read_bytes
from engine.service import protocol
from engine.service.request_events import Emit

if TYPE_CHECKING:
    from engine.gpu.weights.expert_slots import ExpertSlots
    from engine.model.counters import FfnCounters
    from engine.model.transformer import Transformer
    from engine.service.neuron_sample import NeuronSample
    from engine.session.chat_session import ChatSession
    from engine.session.generate import GenerationStats
    from native_kernels.backend import I64

EVERY_S = 0.5
FIRST_S = 0.1  # after the start of an answer: a small model finishes a short one within EVERY_S

# Program stages -> stages reported; others are "other".
_STAGES = {"attention": "attention", "predictor": "predictor", "ffn": "ffn", "exchange": "wait", "head": "head"}


@dataclass
class _Totals:
    """Sums up to a moment, or between two. at: seconds; stages: of programs, by name.

    routed, missed: experts that tokens used, and those of them that were not on the GPU. disk: bytes read from it.
    """

    at: float
    tokens: int = 0
    steps: int = 0
    computed: int = 0
    fired: int = 0
    on_gpu: int | None = None
    sampling_s: float = 0.0
    routed: int = 0
    missed: int = 0
    disk: int | None = None
    stages: dict[str, float] = field(default_factory=dict)


class LiveFeed:
    """Call `watch` from any thread, everything else from the thread that answers."""

    def __init__(self, emit: Emit, clock: Callable[[], float] = time.perf_counter) -> None:
        self._emit = emit
        self._clock = clock
        self._watched = False
        self._id = ""
        self._stats: GenerationStats | None = None  # of the current answer; keeps changing
        self._graph: Transformer | None = None  # transformer whose stages are measured
        self._own_counters: FfnCounters | None = None  # counters that count neurons for this too
        self._sample: NeuronSample | None = None
        self._is_counted = False  # whether active neurons are known
        self._sampled: tuple[object, ...] = ()  # key of the sample's origin
        self._before: _Totals | None = None
        self._is_first = True  # nothing reported for this answer yet
        # Tokens computed before the observed one, which may be computed with others, and how often the sampled neurons
        # fired for them.
        self._fired: tuple[int, I64] | None = None

    def watch(self, on: bool) -> None:
        """Start or stop watching."""
        self._watched = on

    def rest(self, session: ChatSession | None) -> None:
        """Report the idle state: where neurons are, or that no model is loaded. Does nothing unless watched."""
        if not self._watched or session is None:
            self._let_go()
        if self._watched:
            if session is not None:
                self._look_at(session)
            self._emit(self._live(session))

    def begin(self, request_id: str) -> None:
        """Start an answer."""
        self._id, self._stats, self._before, self._fired, self._is_first = request_id, None, None, None, True

    def token(self, session: ChatSession, stats: GenerationStats) -> None:
        """Record a generated token. Costs nothing unless watched."""
        if not self._watched:
            if self._graph is not None:
                self._let_go()
            return
        self._stats = stats
        if self._before is None or self._graph is not session.transformer:
            self._look_at(session)
            self._before, self._fired = self._totals(session, stats), None
        elif self._fired is not None:
            if session.transformer.executor.counters.tokens > self._fired[0]:  # this was the observed token
                self._tell(session, stats)
        elif self._clock() - self._before.at >= (min(FIRST_S, EVERY_S) if self._is_first else EVERY_S):
            if self._sample is None or not self._is_counted:
                self._tell(session, stats)
            else:
                counted = session.transformer.executor.counters.tokens
                self._fired = counted, self._sample.fired_so_far(session.transformer)

    def end(self, session: ChatSession | None) -> None:
        self._fired = None  # the counters were taken in between
        stats, self._stats = self._stats, None
        is_ours = session is not None and self._graph is session.transformer
        if self._watched and session is not None and is_ours and stats is not None and self._before is not None:
            self._tell(session, stats)
        self._id, self._before = "", None
        self.rest(session)

    # --- internals

    def _look_at(self, session: ChatSession) -> None:
        """Measure this session's transformer."""
        from engine.service.neuron_sample import is_counted, sample_of

        graph, model = session.transformer, session.model
        if graph is not self._graph:
            self._let_go()
            self._graph = graph
            if graph.decoder is not None:
                graph.decoder.measure_stages(on_gpu=True)
            counters = graph.executor.counters
            self._is_counted = is_counted(model)
            if self._is_counted:
                counters.record_per_neuron()
                self._own_counters = counters
        of = (model, model.generation, 0 if session.adaptation is None else session.adaptation.moved)
        if of != self._sampled and _slots(session) is None:
            self._sample, self._sampled = sample_of(session), of

    def _let_go(self) -> None:
        graph, self._graph = self._graph, None
        if graph is not None and graph.decoder is not None:
            graph.decoder.measure_stages(False)
        if self._own_counters is not None:
            self._own_counters.stop_per_neuron()
        self._own_counters = self._sample = self._fired = self._before = None
        self._sampled = ()

    def _totals(self, session: ChatSession, stats: GenerationStats) -> _Totals:
        graph = session.transformer
        counters, decoder = graph.executor.counters, graph.decoder
        return _Totals(
            self._clock(), counters.tokens, stats.decode_steps, counters.computed, counters.fired, counters.on_gpu,
            stats.sampling_s, *_routed(session), disk_read_bytes(), {} if decoder is None else decoder.stage_seconds(),
        )  # fmt: skip

    def _tell(self, session: ChatSession, stats: GenerationStats) -> None:
        assert self._before is not None, "the answer has begun"
        now, before = self._totals(session, stats), self._before
        self._before, fired, self._fired, self._is_first = now, self._fired, None, False
        if now.steps > before.steps:
            self._emit(self._live(session, stats, _between(before, now), fired))

    def _live(
        self,
        session: ChatSession | None,
        stats: GenerationStats | None = None,
        since: _Totals | None = None,
        fired: tuple[int, I64] | None = None,
    ) -> protocol.Live:
        if session is None:
            return protocol.Live("")
        model, sample = session.model, self._sample
        mode, on_gpu = model.resolve_mode(session.mode), [] if sample is None else sample.on_gpu
        config = model.opened.config
        there: dict[str, Any] = {"has_zeros": config.has_zeros, "is_counted": self._is_counted, "on_gpu": on_gpu}
        there |= {"n_experts": config.n_experts, "n_experts_used": config.n_experts_used}
        reads = model.weights.expert_reads
        there["reads_experts"] = reads_experts = reads is not None and reads.is_needed
        if (slots := _slots(session)) is not None:
            from engine.service.neuron_sample import ExpertMap

            experts = ExpertMap(slots, config)
            there |= {"on_gpu": experts.on_gpu, "chosen": experts.chosen, "resident": experts.resident}
            there["exchanged"] = slots.exchanged
        if stats is None or since is None:
            return protocol.Live("", mode, **there)
        neurons = since.tokens * session.transformer.executor.counters.n_neurons
        read = stats.prompt_tokens - stats.reused_tokens
        seen: list[list[int]] = []
        if sample is not None and fired is not None:
            counted = session.transformer.executor.counters.tokens
            seen = sample.percent(sample.fired_so_far(session.transformer) - fired[1], counted - fired[0])
        return protocol.Live(
            self._id,
            mode=mode,
            tokens=stats.tokens,
            tok_s=since.steps / since.at,
            mean_tok_s=stats.decode_tok_s,
            ttft_s=stats.ttft_s,
            prefill_tok_s=stats.prefill_tok_s if read >= protocol.FEWEST_READ else None,
            active_share=since.computed / neurons if neurons else None,
            fired_share=since.fired / neurons if neurons else None,
            gpu_neuron_load=None if since.on_gpu is None or not since.computed else since.on_gpu / since.computed,
            token_s=since.at / since.steps,
            cpu_s=_split(since),
            gpu_s={} if session.transformer.decoder is None else session.transformer.decoder.gpu_seconds(),
            fired=seen,
            expert_hits=1 - since.missed / since.routed if since.routed else None,
            disk_bytes=since.disk / since.steps if reads_experts and since.disk is not None else None,
            **there,
        )


def _between(before: _Totals, now: _Totals) -> _Totals:
    on_gpu = None if now.on_gpu is None else now.on_gpu - (before.on_gpu or 0)
    return _Totals(
        now.at - before.at, now.tokens - before.tokens, now.steps - before.steps, now.computed - before.computed,
        now.fired - before.fired, on_gpu, now.sampling_s - before.sampling_s,
        now.routed - before.routed, now.missed - before.missed,
        None if now.disk is None else now.disk - (before.disk or 0),
        {name: max(0.0, seconds - before.stages.get(name, 0.0)) for name, seconds in now.stages.items()},
    )  # fmt: skip


def _slots(session: ChatSession) -> ExpertSlots | None:
    """Return the experts that are on a GPU; None without."""
    return None if session.model.gpu is None else session.model.gpu.expert_slots


def _routed(session: ChatSession) -> tuple[int, int]:
    """Return how many experts all tokens used so far, and how many of those were not on the GPU."""
    slots, config = _slots(session), session.model.opened.config
    if slots is None:
        return 0, 0
    of_layer, layers, missed = slots.tokens * config.n_experts_used, config.expert_layers, slots.missed
    return of_layer * len(layers), sum(int(missed[i]) if slots.is_on_gpu[i] else of_layer for i in layers)


def _split(since: _Totals) -> dict[str, float]:
    """Return seconds per token on the CPU by stage.

    If the program's stages are measured, the sum is the whole token: "other" is the time between two programs without
    sampling.
    """
    found = {"sampling": since.sampling_s}
    for name, seconds in since.stages.items():
        stage = _STAGES.get(name, "other")
        found[stage] = found.get(stage, 0.0) + seconds
    if since.stages:
        found["other"] = found.get("other", 0.0) + max(0.0, since.at - sum(found.values()))
    return {stage: seconds / since.steps for stage, seconds in found.items()}
