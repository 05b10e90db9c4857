"""The numbers of synthetic models: which neurons fire how often is realistic, the text is not. It knows no file format.

A share of the neurons is wanted active on average. The neuron of rank q (0 to 1) is active on a random token with the
probability p(q) ~ 1 / (q + 0.01), at most 0.98: about two thirds of the activations come from the hottest quarter. The
hot ones are scattered over the rows by a fixed permutation.

How it is done: the residual stream is x = E (1 + n), a constant and a token's random part; norms keep the two equally
large. A neuron's direction g is a random one of length 1 whose numbers sum to zero, so that g n is normal and g 1
nothing. With z = the normal quantile of p, the row g + z / d gives g x + z mean(x) ~ N(0, 1) + z, which is positive
with the probability p, whatever the scale of x. Directions lie in a space of fewer dimensions than x has, as many as
the predictor has pairs of rows: fc1 holds the base of that space twice, with both signs, because a ReLU follows, and
the mean; fc2 holds each neuron's coordinates and its z. So the predictor is right but for rounding.

Routers of experts work in the same way: an expert's z decides how often it is among the highest scores. The
vocabulary is one text, token after token: half of a token's random part is its own, half changes slowly from token to
token, so that consecutive tokens share experts. The head continues the text: greedy decoding goes to the next token.
Measured with 128 experts of which 8 are used, against published traces of Qwen3-30B-A3B in brackets: the busiest 10,
25 and 50 % of the experts of 64 tokens take 47, 73 and 89 % of the choices of the next 64 tokens (47, 76 and 91), and
two consecutive tokens share 38 % of their experts (38). The CPU engine, with 24 layers: 50, 75, 90 and 38 %. With 4
of 128 used, two tokens share 28 %; with 4 of 32, 53 %. Two random tokens share 21 % with 8 of 128.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

DISTINCT_LAYERS = 2  # neurons of so many layers are drawn; layers take them in turn
BLOCK_ROWS = 256  # neurons that are drawn at once: what a neuron is depends on its block alone
EMBEDDING_SCALE = 20.0  # E: large beside what layers add to it
_FLATTENING, _MOST_OFTEN = 0.01, 0.98
_ALWAYS_Z = 3.0  # of a neuron whose gate is open for 99.9 % of the tokens
# The expert of rank q (0 to 1) is chosen with a probability ~ 1 / (q + 0.15)**2, at most 0.9.
_EXPERT_FLATTENING, _EXPERT_EXPONENT, _EXPERT_MOST_OFTEN = 0.15, 2.0, 0.9
_MEMORY_TOKENS = 64  # in which the slow half of a token's random part falls to 1/e


def activation_probabilities(n: int, mean: float) -> NDArray[np.float64]:
    """How often each of n neurons is active, the hottest first, so that the wanted share is on average."""
    if not 0 < mean < _MOST_OFTEN:
        raise ValueError(f"a share of {mean} of the neurons cannot be active; more than 0 and less than {_MOST_OFTEN}")
    return _scaled(1 / ((np.arange(n) + 0.5) / n + _FLATTENING), mean, _MOST_OFTEN)


def expert_probabilities(n: int, n_used: int) -> NDArray[np.float64]:
    """Return how likely a token is to choose each of n experts, in descending order; the sum is n_used."""
    rank = (np.arange(n) + 0.5) / n
    return _scaled((rank + _EXPERT_FLATTENING) ** -_EXPERT_EXPONENT, n_used / n, _EXPERT_MOST_OFTEN)


def _scaled(weights: NDArray[np.float64], mean: float, most: float) -> NDArray[np.float64]:
    """Return probabilities proportional to the weights, up to `most`, with this mean."""
    low, high = 0.0, 1.0 / weights.min()
    for _ in range(60):
        middle = (low + high) / 2
        too_few = np.minimum(most, middle * weights).mean() < mean
        low, high = (middle, high) if too_few else (low, middle)
    return np.minimum(most, low * weights)


@dataclass(frozen=True)
class Neurons:
    """The first matrices of the feed-forward blocks, and the predictors that belong to them.

    sparse_gate: the first matrix itself is positive for the active neurons only; otherwise for nearly all, and the
    predictor alone says who is active. rank: rows of fc1, at least 4.
    """

    d_model: int
    d_ff: int
    rank: int
    active_share: float
    sparse_gate: bool
    seed: int

    def __post_init__(self) -> None:
        if self.rank < 4:
            raise ValueError(f"a predictor of rank {self.rank} was asked for; at least 4 is needed")

    @property
    def n_directions(self) -> int:
        return (self.rank - 1) // 2

    @cached_property
    def _quantiles(self) -> tuple[NDArray[np.float64], ...]:
        """z of every neuron, per distinct layer."""
        normal = NormalDist()
        z = np.array([normal.inv_cdf(p) for p in activation_probabilities(self.d_ff, self.active_share)])
        out = []
        for number in range(DISTINCT_LAYERS):
            scattered = np.empty_like(z)
            scattered[np.random.default_rng([self.seed, 1, number]).permutation(self.d_ff)] = z
            out.append(scattered)
        return tuple(out)

    @cached_property
    def _bases(self) -> tuple[F32, ...]:
        """[n_directions, D] per distinct layer; rows of length about 1 that sum to zero."""
        out = []
        for number in range(DISTINCT_LAYERS):
            rng = np.random.default_rng([self.seed, 2, number])
            base = rng.standard_normal((self.n_directions, self.d_model), np.float32)
            base -= base.mean(axis=1, keepdims=True)
            out.append(base / np.float32(np.sqrt(self.d_model)))
        return tuple(out)

    def prepare(self) -> None:
        """What all blocks share is there afterwards: several threads may draw then."""
        _ = self._quantiles, self._bases

    def probabilities(self, layer: int) -> NDArray[np.float64]:
        """How often each neuron of the layer is active."""
        normal = NormalDist()
        return np.array([normal.cdf(z) for z in self._quantiles[layer % DISTINCT_LAYERS]])

    def first(self, layer: int, start: int, stop: int) -> F32:
        """Rows of the matrix that decides which neurons fire, [stop - start, D]; start is a multiple of BLOCK_ROWS."""
        _, directions, z = self._block(layer, start, stop)
        if not self.sparse_gate:
            z = np.full_like(z, _ALWAYS_Z)
        return directions + (z / self.d_model)[:, None]

    def fc1(self, layer: int) -> F32:
        """[rank, D]: the base, its negative, and the mean in the rows that remain."""
        base = self._bases[layer % DISTINCT_LAYERS]
        mean = np.full((self.rank - 2 * self.n_directions, self.d_model), 1 / self.d_model, np.float32)
        return np.concatenate([base, -base, mean * np.float32(np.sqrt(self.d_model))])

    def fc2(self, layer: int, start: int, stop: int) -> F32:
        """Rows [stop - start, rank], as `first`."""
        coordinates, _, z = self._block(layer, start, stop)
        n_mean = self.rank - 2 * self.n_directions
        of_mean = np.repeat((z / np.float32(n_mean * np.sqrt(self.d_model)))[:, None], n_mean, axis=1)
        return np.concatenate([coordinates, -coordinates, of_mean], axis=1)

    def _block(self, layer: int, start: int, stop: int) -> tuple[F32, F32, F32]:
        """Coordinates [n, n_directions], directions [n, D] and z [n] of some neurons."""
        if start % BLOCK_ROWS or stop - start > BLOCK_ROWS:
            raise ValueError(f"neurons {start} to {stop} are no block of {BLOCK_ROWS}")
        number = layer % DISTINCT_LAYERS
        rng = np.random.default_rng([self.seed, 3, number, start // BLOCK_ROWS])
        coordinates = rng.standard_normal((stop - start, self.n_directions), np.float32)
        directions = coordinates @ self._bases[number]
        length = np.linalg.norm(directions, axis=1, keepdims=True)
        z = self._quantiles[number][start:stop].astype(np.float32)
        return coordinates / length, directions / length, z


@dataclass(frozen=True)
class Routing:
    """The embedding, the head and the routers of a model with experts."""

    d_model: int
    n_experts: int
    n_experts_used: int
    vocab_size: int
    seed: int

    @cached_property
    def _text(self) -> F32:
        """Each token's random part, f32 [V, D]: numbers of variance 1."""
        rng = np.random.default_rng([self.seed, 6])
        kept = math.exp(-1 / _MEMORY_TOKENS)
        slow = rng.standard_normal(self.d_model, np.float32)
        own = rng.standard_normal((self.vocab_size, self.d_model), np.float32)
        for row in own:
            slow = np.float32(kept) * slow + np.float32(math.sqrt(1 - kept**2)) * rng.standard_normal(
                self.d_model, np.float32
            )
            row += slow
        own *= np.float32(math.sqrt(0.5))
        return own

    def prepare(self) -> None:
        """Draw what the methods share, so that several threads may call them."""
        _ = self._text

    def embedding(self, start: int, stop: int) -> F32:
        """Return rows of the embedding [stop - start, D]."""
        return np.float32(EMBEDDING_SCALE) * (1 + self._text[start:stop])

    def head(self, start: int, stop: int) -> F32:
        """Return rows of the head [stop - start, D]: each token scores the one before it."""
        return self._text[np.arange(start, stop) - 1] / np.float32(math.sqrt(self.d_model))

    def router(self, layer: int) -> F32:
        """Return a layer's router [E, D]."""
        rng = np.random.default_rng([self.seed, 7, layer])
        rows = rng.standard_normal((self.n_experts, self.d_model), np.float32)
        rows -= rows.mean(axis=1, keepdims=True)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        normal = NormalDist()
        z = np.array([normal.inv_cdf(p) for p in expert_probabilities(self.n_experts, self.n_experts_used)])
        return rows + (rng.permutation(z) / self.d_model)[:, None].astype(np.float32)
