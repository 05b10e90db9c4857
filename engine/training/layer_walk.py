"""Take many sequences through a model layer by layer: each layer over all of them before the next.

So each layer's weights are read once for any amount of text, even if the model is larger than the memory. A visitor
sees the inputs and neurons of each FFN; only the residual stream is kept, with keys and values of one layer and one
sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.config import KvCodec, ModelConfig
from engine.errors import HostMemoryError, InvalidRequestError, UnsupportedModelError
from engine.executor.dense import DenseExecutor
from engine.executor.feed_forward import behind_first, down_of_all, everything, first_values
from engine.job import Job
from engine.model.counters import FfnCounters
from engine.model.graph import Attend, AttendLatent, graph_of
from engine.model.router import Routing
from engine.model.transformer import Angles, FfnExecutor, RecurInput, Transformer, check_sequence, joined_angles
from engine.model.weights import FfnWeights, ModelWeights
from engine.training.residual_stream import ResidualStream
from native_kernels import kv_blocks
from native_kernels.backend import F32, I64, U8, Operators
from native_kernels.kv_blocks import KvLayout

if TYPE_CHECKING:
    from engine.session.loaded_model import LoadedModel

# Positions per batch, from as many sequences as needed. 512 suffice to unpack weights rarely, and few enough that an
# array of all neurons in a 70B model's layer takes 60 MB.
BATCH_POSITIONS = 512


@dataclass(frozen=True, eq=False)
class ModelParts:
    """The parts of a loaded model that the walk uses."""

    config: ModelConfig
    weights: ModelWeights
    operators: Operators
    kv_codec: KvCodec = "f32"

    @classmethod
    def of(cls, model: LoadedModel) -> ModelParts:
        return cls(model.opened.config, model.weights, model.backend.operators, model.kv_codec)


class LayerBatch:
    """Positions at one layer's FFN, in the order of the sequences, computed on request.

    start: number of the first among all positions of all sequences; every layer has the same batches. sequence,
    position: i64 [T], the sequence of each, and its position there. residual [T, D]: before the FFN's norm (in parallel
    blocks the layer's input); normed [T, D]: the FFN's input. The arrays belong to the walk: copy what you keep, change
    nothing.
    """

    def __init__(
        self, parts: ModelParts, layer: int, rows: _Rows, residual: F32, normed: F32, counts: I64 | None = None,
        routing: Routing | None = None,
    ) -> None:  # fmt: skip
        self.routing = routing
        self.layer = layer
        self.start = rows.start
        self.sequence = rows.sequence
        self.position = rows.position
        self.residual = residual
        self.normed = normed
        self._parts = parts
        self._counts = counts

    def __len__(self) -> int:
        return len(self.position)

    @cached_property
    def first(self) -> F32:
        """Return the activation's input, biases included: gate, or up without a gate; [T, F].

        Raises: InvalidRequestError if the model has experts.
        """
        return first_values(self._ffn, self.normed, self._parts.operators)

    @property
    def hidden(self) -> F32:
        """Return the input of down, [T, F], for every neuron, whatever an executor skips: the activation, times up."""
        return self._behind_first[0]

    @property
    def fired(self) -> NDArray[np.bool_]:
        """Return which neurons' activation is not zero, [T, F]; in drelu both activations count."""
        return self._behind_first[1]

    @property
    def fired_counts(self) -> I64:
        """Return at how many of the positions each neuron is active, [F]; with experts [E F], one
        expert after another.
        """
        counts: I64 = np.count_nonzero(self.fired, axis=0) if self._counts is None else self._counts
        return counts

    def hidden_of(self, expert: int) -> tuple[I64, I64, F32]:
        """Return the positions that chose the expert, [T'], its places among their choices, and the input of its down
        there, [T', d_ff], times its weight.
        """
        assert self.routing is not None, "only routed layers have experts to ask for"
        positions, places = np.nonzero(self.routing.experts == expert)
        layer, spec = self._parts.weights.layers[self.layer], graph_of(self._parts.config).ffn(self.layer).spec
        h, _, _ = everything(spec, layer.routed[expert], self.normed[positions], self._parts.operators)
        return positions, places, h * self.routing.weights[positions, places, None]

    def through_down(self) -> F32:
        """Return the FFN's output when every neuron is computed, [T, D]."""
        return down_of_all(self._ffn, self.hidden, self._parts.operators)

    @cached_property
    def _behind_first(self) -> tuple[F32, NDArray[np.bool_], int]:
        spec = graph_of(self._parts.config).ffn(self.layer).spec
        return behind_first(spec, self._ffn, self.normed, self.first, self._parts.operators)

    @property
    def _ffn(self) -> FfnWeights:
        if self._parts.config.n_experts:
            raise InvalidRequestError("For a model with experts, only neuron counts are available.")
        return self._parts.weights.layers[self.layer].ffns[0]


class WalkedStream:
    """The residual stream after the last layer, of all positions. Close it after use."""

    def __init__(self, model: Transformer, stream: ResidualStream) -> None:
        self._model = model
        self._stream = stream

    def logits(self, start: int, stop: int) -> F32:
        """Return logits [stop - start, V] of these positions, numbered through all sequences."""
        return self._model.logits(self._model.last_norm(np.array(self._stream.values[start:stop])))

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> WalkedStream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


Visit = Callable[[LayerBatch], None]


def walk_layers(
    model: LoadedModel | ModelParts,
    sequences: Sequence[Sequence[int]],
    visit: Visit = lambda batch: None,
    *,
    executor: FfnExecutor | None = None,
    job: Job = Job(),
    most_ram_bytes: int | None = None,
) -> WalkedStream:
    """Run every layer over all sequences, each from position 0 on; visit sees each batch at each FFN.

    executor: computes the FFN after the visit as decode would; a SparseExecutor gives the masked stream. Without one
    every neuron is computed, at most once. most_ram_bytes: of the stream; a larger one goes to a temporary file (None:
    a quarter of the free RAM). Units: progress reports positions times layers, done and in total. Cost: N D floats of
    stream, keys and values of the longest sequence in one layer, and some arrays [T, F] for T = BATCH_POSITIONS. Mapped
    weights are read once. Raises: InvalidRequestError without a token, TokenizerMismatchError and ContextOverflowError
    as `forward` does, HostMemoryError, DiskSpaceError, UnsupportedModelError if layers need more than the stream, and
    Cancelled between two batches.
    """
    parts = model if isinstance(model, ModelParts) else ModelParts.of(model)
    check_walk(parts.config)
    texts = [np.asarray(sequence, np.int64) for sequence in sequences]
    n_positions = sum(len(text) for text in texts)
    if not n_positions:
        raise InvalidRequestError("There is no text to go through the model.", "Give at least one token.")
    for text in texts:
        check_sequence(parts.config, text)
    stream = ResidualStream(n_positions, parts.config.d_model, most_ram_bytes)
    try:
        return _Walk(parts, texts, stream, visit, executor).run(job)
    except BaseException:
        stream.close()
        raise


@dataclass(frozen=True, eq=False)
class _Segment:
    """Positions of one sequence within a batch."""

    rows: slice  # of the batch
    start: int  # position of the first
    length: int  # of the whole sequence


@dataclass(frozen=True, eq=False)
class _Rows:
    """The positions and sequences of one batch."""

    start: int
    sequence: I64  # [T]
    position: I64  # [T]
    segments: list[_Segment]

    @property
    def all(self) -> slice:
        return slice(self.start, self.start + len(self.position))


def _batches(lengths: Sequence[int], size: int) -> list[_Rows]:
    """Split all positions in order, `size` at a time; a sequence may span several."""
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    position = np.concatenate([np.arange(length) for length in lengths])
    batches = []
    for start in range(0, len(position), size):
        inside, at = sequence[start : start + size], position[start : start + size]
        edges = [0, *(np.flatnonzero(np.diff(inside)) + 1).tolist(), len(inside)]
        segments = [_Segment(slice(a, b), int(at[a]), lengths[inside[a]]) for a, b in pairwise(edges)]
        batches.append(_Rows(start, inside, at, segments))
    return batches


def check_walk(config: ModelConfig) -> None:
    """Raise UnsupportedModelError if the model cannot be run layer by layer."""
    if not config.walks_by_layer:
        raise UnsupportedModelError(
            "This model cannot be run layer by layer: its layers share keys and values, or have their own embeddings "
            "or two inputs of the FFN, or some have no FFN.",
            "It can be used without predictors and activation counts.",
        )


class _Walk:
    """The state of one walk. It is an FfnExecutor too, because the graph passes it what visitors need."""

    name = "walk"

    def __init__(
        self,
        parts: ModelParts,
        texts: Sequence[I64],
        stream: ResidualStream,
        visit: Visit,
        executor: FfnExecutor | None,
    ) -> None:
        config = parts.config
        self._parts = parts
        self._visit = visit
        self._tokens = np.concatenate(texts)
        self._batches = _batches([len(text) for text in texts], BATCH_POSITIONS)
        self._stream = stream
        if executor is None and config.n_experts:
            executor = DenseExecutor(config, parts.weights, parts.operators)
            executor.counters.record_per_neuron()
        self._executor = executor
        self.counters = FfnCounters(config.n_layers, config.n_neurons, config.n_blocks_used)
        self._graph = Transformer(config, parts.weights, self, parts.operators)
        graph, longest = self._graph.graph, max(len(text) for text in texts)
        steps = [one for layer in graph.layers for one in layer]
        specs = {one.spec.local: one.spec for one in steps if isinstance(one, Attend | AttendLatent)}
        try:
            self._kv: dict[bool, tuple[U8, KvLayout]] = {}  # of one layer of each shape of heads
            for local, spec in specs.items():
                layout = config.kv_layout(parts.kv_codec, local)
                self._kv[local] = kv_blocks.allocate(1, spec.n_kv_heads, longest, layout)[0], layout
            size = 0 if config.recurrence is None else config.recurrence.state_size
            self._states: F32 = np.zeros((2, size), np.float32)  # of one layer and sequence: read, written
        except MemoryError as error:
            raise HostMemoryError(f"Keys and values of {longest} positions do not fit into the RAM.") from error
        self._rows = self._batches[0]

    def run(self, job: Job) -> WalkedStream:
        values = self._stream.values
        n_positions, n_layers = len(values), self._parts.config.n_layers
        for rows in self._batches:
            values[rows.all] = self._graph.embed(self._tokens[rows.all], rows.position)
        for layer in range(n_layers):
            for rows in self._batches:
                job.stop_if_cancelled()
                self._rows = rows
                x = np.array(values[rows.all])
                values[rows.all] = self._graph.layer(layer, x, self._angles(rows), self._attend, self._recur)
                job.progress(layer * n_positions + rows.all.stop, n_layers * n_positions)
        return WalkedStream(self._graph, self._stream)

    def _angles(self, rows: _Rows) -> tuple[Angles, ...]:
        """Return the angles of each sequence: in some models they depend on its length."""
        return joined_angles([self._graph.angles(rows.position[one.rows], one.length) for one in rows.segments])

    def _attend(self, layer: int, q: F32, k: F32, v: F32) -> F32:
        """Attend within each sequence. One cache is kept: a sequence that continues in the next batch is this one's
        last.
        """
        out = np.empty_like(q)
        for one in self._rows.segments:
            part = one.rows
            kept = self._kv[self._graph.graph.attention(layer).local]
            out[part] = self._graph.attend(layer, q[part], k[part], v[part], *kept, one.start)
        return out

    def _recur(self, layer: int, inputs: RecurInput) -> F32:
        """Run the recurrent layer over each sequence, with one state as with one cache."""
        out = np.empty_like(inputs.gate)
        for one in self._rows.segments:
            if one.start == 0:
                self._states[0] = 0
            out[one.rows] = self._graph.recur(layer, inputs.rows(one.rows), self._states[0], self._states[1])
            self._states = self._states[::-1]
        return out

    def ffn(self, layer: int, x: F32, residual: F32, routing: Routing | None = None) -> F32:
        """Show the batch and compute the block."""
        if self._parts.config.n_experts:
            return self._through_experts(layer, x, residual, routing)
        batch = LayerBatch(self._parts, layer, self._rows, residual, x)
        self._visit(batch)
        if self._executor is None:
            return batch.through_down()
        return self._executor.ffn(layer, x, residual)

    def _through_experts(self, layer: int, x: F32, residual: F32, routing: Routing | None) -> F32:
        assert self._executor is not None, "models with experts are given one"
        counters = self._executor.counters
        before = None if counters.per_neuron is None else counters.per_neuron[layer].copy()
        added = self._executor.ffn(layer, x, residual, routing)
        after = counters.per_neuron
        counts = None if before is None or after is None else after[layer] - before
        self._visit(LayerBatch(self._parts, layer, self._rows, residual, x, counts, routing))
        return added
