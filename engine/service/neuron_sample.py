"""A sample of neurons per layer for the Live page: where they are, and which are active for a token.

A layer's neurons are divided into equal groups: the GPU's before the CPU's, the most active first. Of a model whose
experts are on a GPU, the groups are of experts, the most chosen first.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineError
from engine.model.model_artefacts import read_stats
from native_kernels.backend import I64

if TYPE_CHECKING:
    from engine.config import ModelConfig
    from engine.gpu.weights.expert_slots import ExpertSlots
    from engine.model.transformer import Transformer
    from engine.session.chat_session import ChatSession
    from engine.session.loaded_model import LoadedModel

log = logging.getLogger(__name__)

GROUPS = 22  # of a layer
EXPERT_GROUPS = 64  # of a layer, at most
SAMPLED = 16  # sampled neurons per group


class NeuronSample:
    """on_gpu [L]: share of a layer's neurons that the GPU computes."""

    def __init__(self, orders: list[I64], n_neurons: int, on_gpu: list[float]) -> None:
        """orders: [L] of i64 [F], each layer's neurons in display order."""
        self.on_gpu = on_gpu
        places = ((np.arange(GROUPS * SAMPLED) + 0.5) * n_neurons / (GROUPS * SAMPLED)).astype(np.int64)
        rows = [order[places] + layer * n_neurons for layer, order in enumerate(orders)]
        self._ids: I64 = np.concatenate(rows)

    def fired_so_far(self, graph: Transformer) -> I64:
        """Return how often the sampled neurons were active so far. Requires per-neuron counting."""
        return graph.executor.counters.fired_so_far(self._ids)

    @staticmethod
    def percent(fired: I64, n_tokens: int = 1) -> list[list[int]]:
        """Return [L][GROUPS]: percent of a group's sampled neurons active for a token, as a mean over n_tokens."""
        shares = np.minimum(fired / max(n_tokens, 1), 1.0).reshape(-1, GROUPS, SAMPLED).mean(axis=2)
        found: list[list[int]] = np.rint(100 * shares).astype(np.int64).tolist()
        return found


class ExpertMap:
    """The experts of a model now.

    chosen, resident [L][groups]: as protocol.Live has them. on_gpu [L]: share of a layer's experts on the GPU.
    """

    def __init__(self, slots: ExpertSlots, config: ModelConfig) -> None:
        heat = slots.heat_in_choices.astype(np.float64)
        resident = np.zeros(heat.shape, bool)
        for row, ids in zip(resident, slots.expert_in, strict=True):
            row[ids[ids >= 0]] = True
        order = np.lexsort((~resident, -heat), axis=1)
        starts = np.arange(0, config.n_experts, -(-config.n_experts // EXPERT_GROUPS))
        sizes = np.diff([*starts, config.n_experts])
        tokens = np.maximum(heat.sum(axis=1, keepdims=True) / config.n_experts_used, 1e-9)

        def percent(values: NDArray[np.float64]) -> list[list[int]]:
            groups = np.add.reduceat(np.take_along_axis(values, order, axis=1), starts, axis=1) / sizes
            found: list[list[int]] = np.rint(100 * groups).astype(np.int64).tolist()
            return found

        self.chosen = percent(heat / tokens)
        self.resident = percent(resident.astype(np.float64))
        self.on_gpu: list[float] = resident.mean(axis=1).tolist()


def is_counted(model: LoadedModel) -> bool:
    """Return whether active neurons are known. A GPU counts them only if its neurons have slots."""
    return model.opened.config.has_zeros and (model.gpu is None or model.hot_blocks is not None)


def sample_of(session: ChatSession) -> NeuronSample:
    """Return a sample of the session's model in its current placement.

    Cost: sorts all neurons of all layers once, half a second for the largest models.
    """
    model, config = session.model, session.model.opened.config
    counted = None if session.adaptation is not None else _counted(model)
    orders, on_gpu = [], []
    for layer in range(config.n_layers):
        busiest: I64 = np.arange(config.n_neurons, dtype=np.int64)
        if session.adaptation is not None:
            busiest = np.argsort(-session.adaptation.rates(layer), kind="stable")
        elif counted is not None:
            busiest = np.argsort(-counted[layer], kind="stable")
        hot = _on_gpu(model, layer, config.n_neurons)[busiest]
        orders.append(np.concatenate((busiest[hot], busiest[~hot])))
        on_gpu.append(float(np.count_nonzero(hot)) / config.n_neurons)
    return NeuronSample(orders, config.n_neurons, on_gpu)


def _counted(model: LoadedModel) -> I64 | None:
    """Return the neuron counts of the statistics [L, F]; None without statistics."""
    try:
        stats = read_stats(model.opened)
    except EngineError as error:
        log.info("The statistics of %s cannot be used: %s", model.name, error)
        return None
    config = model.opened.config
    if stats is None or stats.counts.shape != (config.n_layers, config.n_neurons):
        return None
    return stats.counts


def _on_gpu(model: LoadedModel, layer: int, n_neurons: int) -> NDArray[np.bool_]:
    """Return which neurons of the layer the GPU computes, [F]."""
    found: NDArray[np.bool_] = np.zeros(n_neurons, bool)
    if model.gpu is not None:
        blocks = model.hot_blocks
        found[model.gpu.placement.in_slots[layer] if blocks is None else blocks.tables[layer].neuron_in] = True
    return found
