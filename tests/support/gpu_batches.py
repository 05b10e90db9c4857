"""Models on a GPU for tests of what decodes several sequences there, beside the program of one sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
from fakes.batch_operators import FakeBatchOps
from support.gpu_tokens import put_on_gpu

from engine.config import ModelConfig
from engine.executor.dense import DenseExecutor
from engine.executor.exact import ExactExecutor
from engine.executor.sparse import SparseExecutor
from engine.gpu.batch.batch import open_gpu_batch
from engine.gpu.token.token_model import TokenModel
from engine.gpu.token.transformer import GpuTransformer
from engine.model.weights import ModelWeights
from engine.session.generate import decode_batch, decode_one_token
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cuda.batch_ops import GpuBatchOps
from native_kernels.cuda.cuda_gpu import CudaGpu

CLOSE = 0.004  # of the largest logit: products of halves are off by 0.0005 of their terms, in every layer
Loaded = tuple[ModelConfig, ModelWeights]


class Batched:
    """A model on a GPU, for one sequence and for several."""

    def __init__(self, gpu: Any, loaded: Loaded, mode: Any, hot: Any, batch: int, predictor: Any = None, **how: Any):
        config, weights = loaded
        predictor = predictor if mode == "sparse" else None
        self.on_gpu = on_gpu = put_on_gpu(gpu, config, weights, mode, hot, predictor, **{"sequences": batch, **how})
        operators = CpuOperators(on_gpu.pool)
        executor: Any = DenseExecutor(config, weights, operators)
        if mode == "exact":
            executor = ExactExecutor(config, weights, operators)
        elif mode == "sparse":
            executor = SparseExecutor(config, weights, predictor, operators)
        executor.counters = on_gpu.counters
        self.alone = GpuTransformer(config, weights, executor, operators, on_gpu.decoder)
        ops: Any = GpuBatchOps(gpu) if isinstance(gpu, CudaGpu) else FakeBatchOps(gpu)
        tables, slots = on_gpu.tables or None, on_gpu.loaded.expert_slots
        model = TokenModel(config, weights, on_gpu.loaded.model, mode, predictor, tables, slots)
        self.together = open_gpu_batch(gpu, model, self.alone, operators, on_gpu.region, ops, batch)

    def close(self) -> None:
        self.together.close()
        self.on_gpu.close()


def check(
    gpu: Any, loaded: Loaded, mode: Any, hot: Any, batch: int = 3, close: float = CLOSE, least: float = 1.0, **how: Any
) -> None:  # fmt: skip
    """close: by how much of the largest logit others may be off. least: of the logits [V], the share that is to be
    right: a predictor's logit at its very threshold falls to one side or the other. The cache of a sequence differs
    from then on, so its later logits are not compared."""
    model = Batched(gpu, loaded, mode, hot, batch, **how)
    if loaded[0].recurrence is not None or loaded[0].latent is not None:
        close *= 1.5  # a state adds up the rounding of earlier tokens, and latent vectors pass two products more
    try:
        rng = np.random.default_rng(1)
        prompts = [rng.integers(3, loaded[0].vocab_size, 1 + 2 * b).tolist() for b in range(batch)]
        steps = rng.integers(3, loaded[0].vocab_size, (3, batch)).tolist()
        wanted, following, counted, caches = [], [], 0 * model.on_gpu.counters.layers, []
        for prompt, column in zip(prompts, zip(*steps, strict=True), strict=True):
            caches.append(model.on_gpu.cache())
            for token in prompt:
                decode_one_token(model.alone, token, caches[-1])
            caches[-1].remember()
            before = model.on_gpu.counters.layers.copy()
            wanted.append([decode_one_token(model.alone, token, caches[-1]) for token in column])
            counted += model.on_gpu.counters.layers - before
            following.append(decode_one_token(model.alone, 9, caches[-1]))
            caches[-1].truncate(len(prompt))
        model.together.reset()
        largest = float(np.abs(wanted).max())
        off_by: list[list[float]] = [[] for _ in caches]  # of each sequence, up to the first that is wrong
        for i, tokens in enumerate(steps):
            found = decode_batch(model.together, tokens, caches)
            off = np.abs(found - np.stack([one[i] for one in wanted])).max(axis=1)
            for one, now in zip(off_by, off.tolist(), strict=True):
                if all(before < close * largest for before in one):
                    one.append(now)
        compared = [now for one in off_by for now in one]
        right = sum(now < close * largest for now in compared)
        assert right >= least * len(compared), f"{right} of {len(compared)} are right; off by {off_by}, of {largest}"
        assert model.together.counters.tokens == 3 * batch
        if least == 1.0:
            off = np.abs(model.together.counters.layers - counted)
            assert off.max() <= 0.02 * counted.max() + 1, (model.together.counters.layers, counted)
        assert (model.together.union_shares() <= 1).all()
        for cache in caches:
            cache.truncate(cache.length - 1)
        again = decode_batch(model.together, steps[-1], caches)  # after what the step before had left
        after = np.stack([decode_one_token(model.alone, 9, cache) for cache in caches[::-1]])  # each by itself again
        for now, before in ((again, found), (after, np.stack(following[::-1]))):
            off = np.abs(now - before).max(axis=1)
            near = (off < close * largest).sum() + (loaded[0].n_experts > 0)  # rounding may choose another expert
            assert near >= batch or (least < 1.0 and np.isfinite(off).all()), (off, largest)
        assert [cache.length for cache in caches] == [len(p) + 4 for p in prompts]
    finally:
        model.close()
