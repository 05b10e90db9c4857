"""Learn from sample texts which neurons of a model are active, so that its first placement is a good one.

A model with statistics, or one that has answered before, needs none of this.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import EngineError
from engine.executor.adaptation import Adaptation, can_learn, has_learned
from engine.executor.hot_blocks import why_not as why_not_split
from engine.job import Job
from engine.loading.sample_text import mixed_tokens
from engine.model.model_artefacts import read_stats

if TYPE_CHECKING:
    from engine.config import Mode
    from engine.gpu.loaded_part import LoadedPart
    from engine.loading.load_context import LoadContext

log = logging.getLogger(__name__)

# On the starter model, of the activations that the hottest tenth of the neurons by its statistics has, the hottest
# tenth by 1,024 of these tokens has 91 to 95 % (dialogues, stories, encyclopedia), by 256 tokens 91 to 92 %.
_TOKENS = 1024
_DECODED_TOKENS, _LEARNING_S = 16, 4.0  # if prompts are decoded: tokens at a time, and the time limit


def learn(part: LoadedPart, base: LoadContext, mode: Mode, job: Job) -> bool:
    """Run sample texts through a model that was just loaded, and save how often each neuron was active.

    Returns whether anything was learned: not if something is known already, if the GPU computes all neurons, or if
    those of a layer are not placed individually; nor if that fails, which is only logged.
    Units: progress in bytes of the weights. Cost: a prompt of _TOKENS, which reads all weights once; or _LEARNING_S of
    decoding. Raises: Cancelled.
    """
    opened, placement = base.opened, part.loaded.placement
    everywhere = placement.hot_neurons == placement.n_layers * placement.neurons
    if not base.engine.adapt or not can_learn(opened) or everywhere or why_not_split(opened.config, base.weights):
        return False
    base.steps.begin("learning")
    counters = part.transformer(mode).executor.counters
    counters.record_per_neuron()
    try:
        if read_stats(opened) is not None or has_learned(opened):
            return False
        _read_texts(part, base, mode, job)
        learned = Adaptation(opened)
        learned.learn(counters)
        learned.keep()
    except EngineError as error:
        log.info("The activity of the neurons was not learned: %s", error)
    finally:
        counters.stop_per_neuron()
        counters.reset()
    return has_learned(opened)


def _read_texts(part: LoadedPart, base: LoadContext, mode: Mode, job: Job) -> None:
    """Compute sample texts as a prompt. Raises: Cancelled, EngineError."""
    transformer, cache = part.transformer(mode), part.new_cache(min(_TOKENS, base.context))
    tokens = np.array(mixed_tokens(base.tokenizer, cache.capacity), np.int64)
    at_once = part.prompts is not None and part.prompts.least_tokens <= len(tokens)
    size, end = len(tokens) if at_once else _DECODED_TOKENS, time.monotonic() + _LEARNING_S
    n_bytes, done = base.weights.n_bytes, 0

    def look(share: float) -> None:
        job.stop_if_cancelled()
        job.progress(int(n_bytes * (done + share * len(piece)) / len(tokens)), n_bytes)

    while done < len(tokens) and time.monotonic() < end:
        piece = tokens[done : done + size]
        transformer.prefill(piece, cache, look=look)
        done += len(piece)
    log.info("Active neurons were counted on %d tokens of sample texts", cache.length)
