"""Learn from sample texts which neurons of a model are active, so that its first placement is a good one.

A model with statistics, or one that has answered before, needs none of this.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import DeviceFailedError
from engine.executor.adaptation import Adaptation, can_learn, knows_activity
from engine.executor.hot_blocks import why_not as why_not_split
from engine.job import Job
from engine.loading.sample_text import mixed_tokens

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

    Returns whether anything was learned: not if something is known already, if the GPU computes all neurons, if those
    of a layer are not placed individually, or if the GPU fails or nothing can be saved, which is only logged.
    Cost: a prompt of _TOKENS, which reads all weights once; or _LEARNING_S of decoding.
    Raises: Cancelled.
    """
    opened, config, placement = base.opened, base.opened.config, part.loaded.placement
    everywhere = placement.hot_neurons == placement.n_layers * placement.neurons
    if not base.engine.adapt or not can_learn(opened) or everywhere or why_not_split(config, base.weights):
        return False
    if knows_activity(opened):
        return False
    base.steps.begin("learning")
    transformer, counters = part.transformer(mode), part.transformer(mode).executor.counters
    cache = part.new_cache(min(_TOKENS, base.context))
    tokens = np.array(mixed_tokens(base.tokenizer, cache.capacity), np.int64)
    at_once = part.prompts is not None and part.prompts.least_tokens <= len(tokens)
    size, end = len(tokens) if at_once else _DECODED_TOKENS, time.monotonic() + _LEARNING_S
    counters.record_per_neuron()
    try:
        for start in range(0, len(tokens), size):
            transformer.prefill(tokens[start : start + size], cache, look=lambda share: job.stop_if_cancelled())
            if time.monotonic() > end:
                break
        learned = Adaptation(opened)
        learned.learn(counters)
        learned.keep()
        log.info("Active neurons were counted on %d tokens of sample texts", cache.length)
    except DeviceFailedError as error:
        log.info("The activity of the neurons was not learned: %s", error)
    finally:
        counters.stop_per_neuron()
        counters.reset()
    return knows_activity(opened)
