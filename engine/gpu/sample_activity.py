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
from engine.gpu.placement_text import hot_share
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
# 32B in F16 within 24 GiB, synthetic: 87 % of the rate with true statistics after 1,024 tokens, 94 % after 3 s of them.
_TOKENS, _AT_ONCE, _DECODED_AT_ONCE = 4096, 1024, 16  # in all, as one prompt, and if prompts are decoded
_LEARNING_S = 3.0  # after this no further prompt begins


def learn(part: LoadedPart, base: LoadContext, mode: Mode, job: Job) -> bool:
    """Run sample texts through a model that was just loaded, and save how often each neuron was active.

    Returns whether anything was learned: not if something is known already, if the GPU computes all neurons, or if
    those of a layer are not placed individually; nor if that fails, which is only logged.
    Units: progress in bytes of the weights. Cost: prompts of _AT_ONCE tokens, each of which reads all weights once, or
    decoding, for _LEARNING_S or one of them. Raises: Cancelled.
    """
    opened, placement = base.opened, part.loaded.placement
    everywhere = hot_share(placement, opened.config) == 1
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
    """Compute sample texts as prompts. Raises: Cancelled, EngineError."""
    transformer, cache = part.transformer(mode), part.new_cache(min(_AT_ONCE, base.context))
    tokens = np.array(mixed_tokens(base.tokenizer, _TOKENS), np.int64)
    at_once = part.prompts is not None and part.prompts.least_tokens <= cache.capacity
    size, end = cache.capacity if at_once else _DECODED_AT_ONCE, time.monotonic() + _LEARNING_S
    n_bytes, done = base.weights.n_bytes, 0

    def progress(share: float) -> None:
        job.stop_if_cancelled()
        job.progress(int(n_bytes * (done + share * len(chunk)) / len(tokens)), n_bytes)

    while done < len(tokens) and time.monotonic() < end:
        chunk = tokens[done : done + min(size, cache.capacity - cache.length)]
        transformer.prefill(chunk, cache, progress=progress)
        done += len(chunk)
        if cache.length == cache.capacity:
            cache.truncate(0)
    log.info("Active neurons were counted on %d tokens of sample texts", done)
