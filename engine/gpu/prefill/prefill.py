"""Prefill on the GPU: many positions at once through every layer (layer_pass.py), cold weights streamed to the GPU.

A layer placed on the GPU runs there entirely: attention, then hot neurons, then cold ones as they arrive through a
ring of buffers, all added to the residual stream in this order. If the chunk is long enough, all weights of a layer
placed on the CPU are streamed through the same ring (streamed_layers.py); otherwise the CPU computes the layer. Every
neuron is computed; predictors are not used.

Products are exact to about 2^-11 of their terms (native_kernels/cuda/prefill_ops.py explains why).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.errors import Cancelled
from engine.gpu.prefill.cold_buffers import Experts, Key, Neurons, Wanted
from engine.gpu.prefill.cold_stream import ColdStream, Rates
from engine.gpu.prefill.layer_pass import Chunk, LayerPass, PromptCache
from engine.gpu.prefill.prefill_memory import PrefillMemory, Sizes, sizes_for
from engine.gpu.prefill.streamed_layers import StreamedLayer, StreamedLayers
from engine.gpu.weights.expert_exchange import ZeroCopy
from engine.gpu.weights.expert_slots import ExpertSlots
from engine.gpu.weights.layers import GpuLayer, GpuLayerInputs, GpuModel
from engine.job import ShareProgress
from engine.model.counters import FfnCounters
from engine.model.graph import Attend, Ffn, Norm, Scale, Select, Step, emit
from engine.model.kv_cache import StateCopy
from engine.model.transformer import Angles, RecurInput, Transformer
from engine.model.window_memory import Piece
from native_kernels.backend import F32, I32, I64
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.prompt_rows import Rows

# That a cancelled chunk may take to its end, so that layers with a window or a state keep the prompt so far.
MOST_FINISH_S = 1.0


@dataclass(frozen=True)
class StreamingSpeed:
    """Speeds that decide whether a prompt is worth streaming all cold neurons to the GPU.

    cold_bytes: streamed per pass. pcie_bytes_per_s: from pinned memory to the GPU. fill_bytes_per_s: all CPU threads
    reading rows in RAM, for weights that the GPU does not gather itself. decode_token_s: decode of one token. fixed_s:
    time of a pass that does not depend on its bytes.

    layer_bytes: of the CPU's layers that can be streamed. cpu_position_s: the CPU's time per position to compute them,
    with many positions at once. disk_s: time to read the experts on the disk once, while others are streamed.
    """

    cold_bytes: int
    pcie_bytes_per_s: float
    fill_bytes_per_s: float
    decode_token_s: float
    fixed_s: float = 0.01
    layer_bytes: int = 0
    cpu_position_s: float = 0.0
    disk_s: float = 0.0

    def streams_layers(self, n_tokens: int, in_place: bool = False) -> bool:
        """Return whether streaming the CPU's layers takes no more time than computing them on the CPU."""
        return 0 < self._bus_s(self.layer_bytes, in_place) <= self._cpu_s(n_tokens)

    def pass_s(self, n_tokens: int, in_place: bool = False) -> float:
        """Return the estimated seconds of a pass, without the GPU's products."""
        layers = min(self._bus_s(self.layer_bytes, in_place), self._cpu_s(n_tokens))
        return self.fixed_s + max(self.disk_s, self._bus_s(self.cold_bytes, in_place)) + layers

    def _bus_s(self, n_bytes: int, in_place: bool) -> float:
        slower = self.pcie_bytes_per_s if in_place else min(self.pcie_bytes_per_s, self.fill_bytes_per_s)
        return n_bytes / slower if n_bytes else 0.0

    def _cpu_s(self, n_tokens: int) -> float:
        read = self.layer_bytes / self.fill_bytes_per_s if self.layer_bytes else 0.0
        return max(read, n_tokens * self.cpu_position_s)


def _needs_last_rows(steps: Sequence[Step]) -> bool:
    """Return whether a last layer ends with attention and then, row by row, an FFN without experts."""
    kinds = [type(step) for step in steps]
    after = kinds[kinds.index(Attend) + 1 :] if Attend in kinds else []
    is_routed = any(step.spec.routing for step in steps if isinstance(step, Ffn))
    return after in ([Norm, Select, Ffn], [Norm, Select, Ffn, Scale], [Select, Ffn]) and not is_routed


def threshold(speed: StreamingSpeed, most: int = 512, in_place: bool = False) -> int:
    """Return the least number of tokens, 2 to `most`, for which prefill is as fast as decode; `most` + 1 if none is.

    in_place: the GPU gathers the cold neurons itself, so that only the bus limits it.
    """
    counts = range(2, most + 1)
    return next((n for n in counts if speed.pass_s(n, in_place) <= n * speed.decode_token_s), most + 1)


class GpuPrefill:
    """Prefill of one model on one GPU.

    Shapes and names as in Transformer. Call all methods in the thread that has entered the GPU.
    """

    def __init__(
        self, cpu: Transformer, model: GpuModel, ops: GpuPrefillOps, pool: Pool, sizes: Sizes,
        zero_copy: ZeroCopy | None = None, streamed: StreamedLayers | None = None,
        streams: Callable[[int], bool] = lambda n_tokens: True, slots: ExpertSlots | None = None,
    ) -> None:  # fmt: skip
        """cpu: the same model on the CPU. pool: gathers the cold neurons that the GPU cannot read by zero-copy.
        streamed: the CPU's layers to stream, owned by the prefill. streams: whether to stream them for a chunk of
        n_tokens. slots: expert slots, which learn the experts that prompts choose.

        Cost: the bytes of `sizes` on the GPU, and pinned memory. Raises: CudaOutOfMemoryError; nothing stays allocated.
        """
        self.n_kept = 0  # positions of the last run, or of the beginning of a cancelled one, that all layers have
        self._cpu, self._model, self._ops = cpu, model, ops
        self._config = cpu.config
        self._memory = PrefillMemory(ops, sizes)
        self._streamed, self._streams = streamed, streams
        self._cold = ColdStream(self._memory.ring, pool, ops, zero_copy, cpu.weights.expert_reads)
        self._slots = slots
        self._last_rows_only = not self._config.has_zeros and _needs_last_rows(cpu.graph.layers[-1])
        self._missing: list[I32] = []
        self._copy: StateCopy | None = None  # of the state within the current chunk
        self._ahead: tuple[F32, tuple[Angles, ...]] | None = None  # embeddings and angles of the next chunk

    @property
    def counters(self) -> FfnCounters:
        return self._cpu.executor.counters

    @property
    def buffers(self) -> tuple[int, int]:
        """Buffers of streamed weights in the latest chunk that the GPU gathered, and that the CPU filled."""
        return self._cold.gathered, self._cold.filled

    def measure(self) -> Rates | None:
        """Measure how fast cold neurons are gathered and sent; None if there are none."""
        self._missing = self._cold_neurons()
        return self._cold.measure(self._to_stream(self._model.layers), self._memory.sizes.neurons)

    def close(self) -> None:
        """End the worker thread and release the memory."""
        self._cold.close()
        if self._streamed is not None:
            self._streamed.close()
        self._memory.close()

    def run(
        self, tokens: I64, cache: PromptCache, length: int, progress: ShareProgress = lambda share: None,
        last: int | None = None, copy: StateCopy | None = None,
    ) -> F32:  # fmt: skip
        """Run tokens [T] that follow the cache and return their hidden states after the last norm, [T, D].

        Keys and values are written after the cache's positions, but cache.length does not change. length: of the whole
        sequence, as far as known. progress: called after each layer; if it raises, the work ends after all queued work.
        last: return only the last rows, [last, D]. copy: of the state at some point.

        Raises: CudaError, and errors of `progress`.
        """
        cache.sequence_length, started = length, time.perf_counter()
        self._missing = self._cold_neurons()
        most, wanted = self._memory.sizes.positions, len(tokens) if last is None else min(last, len(tokens))
        found: list[F32] = []
        self.n_kept, stops = 0, list[Cancelled]()
        keeps_all = not (cache.forgets or cache.recurs)  # of earlier chunks, whatever the current one has written
        try:
            for done in range(0, len(tokens), most):
                chunk, following = tokens[done : done + most], tokens[done + most : done + 2 * most]
                earlier = done / len(tokens)
                share = len(chunk) / len(tokens)

                began = time.perf_counter()

                def report(part: float, earlier: float = earlier, share: float = share, began: float = began) -> None:
                    try:
                        progress(earlier + share * part)
                    except Cancelled as stop:
                        rest_s = (time.perf_counter() - began) * (1 - part) / part
                        if keeps_all or rest_s > MOST_FINISH_S:
                            self.n_kept *= keeps_all
                            raise
                        stops.append(stop)

                unwanted = min(len(chunk), max(0, len(tokens) - wanted - done))
                self._copy = None if copy is None else replace(copy, n_tokens=copy.n_tokens - done)
                found.append(self._run_chunk(chunk, following, cache, cache.length + done, length, report, unwanted))
                self.n_kept += len(chunk)
                if stops:
                    raise stops[0]
        except BaseException:
            self._cold.stop()
            self._memory.settle()
            if self._memory.states is not None:
                self._memory.states.clear()
            if self._streamed is not None:
                self._streamed.clear()
            raise
        finally:
            self._ahead = self._copy = None
        if self._slots is not None:
            self._slots.exchange_after(time.perf_counter() - started)
        return self._cpu.last_norm(np.concatenate(found) if len(found) != 1 else found[0])

    def _prepare(self, tokens: I64, start: int, length: int) -> tuple[F32, tuple[Angles, ...]]:
        """Return the embeddings and angles of a chunk that begins at position `start`, and stage the embeddings."""
        positions = np.arange(start, start + len(tokens), dtype=np.int64)
        x = self._cpu.embed(tokens, positions, self._model.inputs is None)
        self._memory.stage(x)
        return x, self._cpu.angles(positions, length)

    def _run_chunk(
        self, tokens: I64, following: I64, cache: PromptCache, start: int, length: int, progress: ShareProgress,
        unwanted: int,
    ) -> F32:  # fmt: skip
        """Return the residual stream after the last layer, without its first `unwanted` rows.

        following: the next chunk's tokens, which the CPU prepares while the GPU works.
        """
        memory, n_layers = self._memory, self._config.n_layers
        pieces = cache.pieces(start, len(tokens))
        cache.tokens[start : start + len(tokens)] = tokens
        memory.begin(n_layers, self.counters.per_neuron is not None)
        if memory.experts is not None:
            memory.upload_range(len(tokens))
        layers: Sequence[GpuLayer | StreamedLayer | None] = self._model.layers
        if self._streamed is not None and self._streams(len(tokens)):
            layers = [here or there for here, there in zip(layers, self._streamed.layers, strict=True)]
        self._cold.begin(self._to_stream(layers, cache, start, pieces), memory.sizes.neurons)
        x, angles = self._ahead or self._prepare(tokens, start, length)
        memory.upload_angles(angles)
        unneeded = min(unwanted, len(tokens) - 1) if layers[-1] is not None and self._last_rows_only else 0
        chunk = Chunk(
            self._ops, memory, self._config, self._cpu.graph, self._cold, self._streamed, cache, start, len(tokens),
            self.parts(len(tokens)), pieces, unneeded,
        )  # fmt: skip
        on_gpu = False
        inputs = self._upload_inputs(tokens, x)
        for i in range(n_layers):
            if i:
                progress(i / n_layers)
            layer = layers[i]
            if layer is None:
                if on_gpu:
                    x, on_gpu = memory.download(len(tokens)), False
                x = self._on_cpu(i, x, angles, inputs, cache, start, pieces)
                continue
            if not on_gpu:
                memory.upload(x)
            on_gpu = True
            if i == 0 and self._model.inputs is not None:
                self._project_inputs(self._model.inputs, len(tokens))
            emit(i, self._cpu.graph.layers[i], LayerPass(chunk, layer))
        self._ahead = self._prepare(following, start + len(tokens), length) if len(following) else None
        x = memory.download(len(tokens), unwanted) if on_gpu else x[unwanted:]
        if memory.states is not None:
            memory.states.end()
        if self._streamed is not None:
            self._streamed.finish()
        self._count(layers, len(tokens), unneeded)
        self._learn(len(tokens))
        return x

    def _to_stream(
        self,
        layers: Sequence[GpuLayer | StreamedLayer | None],
        cache: PromptCache | None = None,
        start: int = 0,
        pieces: Sequence[Piece] = (),
    ) -> list[tuple[Key, Wanted]]:
        """Return all that these layers stream, in order of use.

        cache: its positions before `start` are streamed too, for layers placed on the CPU. pieces: of the chunk.
        """
        found: list[tuple[Key, Wanted]] = []
        for i, layer in enumerate(layers):
            if isinstance(layer, GpuLayer):
                if layer.experts is not None:
                    experts = self._cpu.weights.layers[i].experts
                    cold = tuple(experts[e] for e in self._missing[i].tolist())
                    found += [((i, "ffn"), Experts(cold))] if cold else []
                elif len(self._missing[i]):
                    found.append(((i, "ffn"), Neurons(self._cpu.weights.layers[i].ffns[0], self._missing[i])))
            elif layer is not None:
                assert self._streamed is not None, "the layer is streamed"
                assert cache is not None, "its keys and values are somewhere"
                in_window = pieces[0].shift + pieces[0].place if self._cpu.graph.is_local(i) else start
                found += self._streamed.wanted(i, cache.of_layer(i)[0], in_window)
        return found

    def _upload_inputs(self, tokens: I64, x: F32) -> F32 | None:
        """Upload what the tokens add to each layer, and return it, [T, L, P]; None without per-layer embeddings.

        x: their embeddings [T, D]. The GPU completes it if the model has no layers on the CPU.
        """
        on_gpu, cpu = self._model.inputs is not None, self._cpu
        found = cpu.layer_embeddings(tokens) if on_gpu else cpu.layer_inputs(tokens, x)
        if found is not None:
            self._memory.upload_inputs(found)
        return found

    def _project_inputs(self, own: GpuLayerInputs, n_tokens: int) -> None:
        memory, width = self._memory, self._config.d_model
        assert memory.inputs is not None, "the model has per-layer embeddings"
        self._ops.round(Rows(memory.stream, width), n_tokens, width, memory.ffn_in)
        memory.inputs.project(self._ops, own, memory.ffn_in, n_tokens, memory.tile)
        streams = memory.stream_rows(n_tokens)
        if own.streams and streams is not None:
            streams.make_others(self._ops, own.streams, memory.ffn_in, memory.tile)

    def _on_cpu(
        self, i: int, x: F32, angles: tuple[Angles, ...], inputs: F32 | None, cache: PromptCache, start: int,
        pieces: Sequence[Piece],
    ) -> F32:  # fmt: skip
        def attend(layer: int, q: F32, k: F32, v: F32) -> F32:
            return self._cpu.attend_cached(layer, q, k, v, cache, start, pieces)

        def recur(layer: int, inputs: RecurInput) -> F32:
            row, (before, after) = cache.rows[layer], cache.states()
            assert row is not None, "a layer at home on the CPU has its state there"
            earlier, found = before[row] if start == cache.length else after[row].copy(), []
            for part, copy in self.parts(len(x)):
                found.append(self._cpu.recur(layer, inputs.rows(part), earlier, after[row]))
                if copy is not None:
                    copy[row] = after[row]
                earlier = after[row].copy()  # the next part, or chunk, continues with it
            return np.concatenate(found)

        return self._cpu.layer(i, x, angles, attend, recur, inputs)

    def parts(self, n_tokens: int) -> list[tuple[slice, F32 | None]]:
        """Return the parts of a chunk that recur at once, and where the state after each is to be copied to."""
        copy = self._copy
        if copy is None or not 0 < copy.n_tokens <= n_tokens:
            return [(slice(0, n_tokens), None)]
        first, rest = slice(0, copy.n_tokens), slice(copy.n_tokens, n_tokens)
        return [(first, copy.to), (rest, None)][: 1 + (copy.n_tokens < n_tokens)]

    def _cold_neurons(self) -> list[I32]:
        """Return each layer's neurons that are not in GPU memory, ascending. They change between prompts.

        Includes the zero-copy neurons of decode, because many positions repay a copy.
        """
        if self._config.n_experts:
            return self._cold_experts()
        found: list[I32] = []
        slots = self._memory.download_slots([layer.block if layer else None for layer in self._model.layers])
        for i, (layer, in_slots) in enumerate(zip(self._model.layers, slots, strict=True)):
            some = layer is not None and (layer.has_cold or layer.zero_copy is not None)
            missing = np.ones(self._config.ffn_width(i) if some else 0, bool)
            if some:
                missing[in_slots[in_slots >= 0]] = False
            found.append(np.flatnonzero(missing).astype(np.int32))
        return found

    def _cold_experts(self) -> list[I32]:
        """Return each layer's experts that are not in GPU memory, ascending, and upload all ranks.

        Experts in slots rank first, in slot order.
        """
        n = self._config.n_experts
        ffns = [None if layer is None else layer.experts for layer in self._model.layers]
        slots = iter(self._memory.download_numbers([(ffn.slot_of, n) for ffn in ffns if ffn is not None]))
        found, ranks = [], np.zeros((len(ffns), n), np.int32)
        for rank, ffn in zip(ranks, ffns, strict=True):
            rank[:] = -1 if ffn is None else next(slots)
            cold = np.flatnonzero(rank < 0).astype(np.int32)
            rank[cold] = np.arange(n - len(cold), n)
            found.append(cold if ffn is not None and ffn.router is not None else cold[:0])
        self._memory.upload_ranks(ranks)
        self._ranks = ranks
        return found

    def _learn(self, n_tokens: int) -> None:
        """Tell the slots how often a chunk chose each expert."""
        experts, n = self._memory.experts, self._config.n_experts
        if experts is None or self._slots is None:
            return
        ffns = [None if layer is None else layer.experts for layer in self._model.layers]
        on_gpu = np.array([ffn is not None and ffn.router is not None for ffn in ffns])
        [starts] = self._memory.download_numbers([(experts.all_starts, len(on_gpu) * (n + 1))])
        rows = np.diff(starts.reshape(-1, n + 1), axis=1)
        self._slots.learn(np.take_along_axis(rows, self._ranks, axis=1) * on_gpu[:, None], n_tokens)

    def _count(self, layers: Sequence[GpuLayer | StreamedLayer | None], n_tokens: int, unneeded: int) -> None:
        """unneeded: rows that the last layer's FFN did not compute; they count as the others on average."""
        counts, fired = self._memory.counts(self._config.n_layers, n_tokens)
        for i, layer in enumerate(layers):
            if layer is None:
                continue
            some = n_tokens - unneeded if i == len(layers) - 1 else n_tokens
            gate_active, passed = (counts[i].sum(axis=0) * n_tokens // some).tolist()
            config, computed = self._config, self._cpu.graph.ffn(i).spec.n_computed
            self.counters.add_counted(i, n_tokens * config.n_blocks_used, n_tokens * computed, gate_active, passed)
            if self.counters.per_neuron is not None and not config.n_experts:
                self.counters.per_neuron[i] += fired[i]


__all__ = ["GpuPrefill", "PromptCache", "Sizes", "StreamingSpeed", "sizes_for", "threshold"]
