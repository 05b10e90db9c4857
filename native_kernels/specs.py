"""Shapes of layers beside plain attention and FFNs. The window reads them too, so this imports no NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from native_kernels.backend import F32

# Which key head a value head of a gated delta net reads: h // (value heads / key heads), as in Hugging Face's files, or
# h % key heads, as llama.cpp's converter orders the value heads of Qwen3.5.
HeadOrder = Literal["grouped", "tiled"]


@dataclass(frozen=True)
class Temperature:
    """Queries that grow with their position p, by the factor 1 + strength log(1 + floor((p + offset) / length)).

    So attention stays as sharp in a long context; positions below length do not change. Source: Llama 4.
    """

    strength: float
    length: int
    offset: int = 0


class Weighing(NamedTuple):
    """How a router's scores become weights, as engine/model/router.py does. adds_up: those chosen add up to 1.

    margin: softmax: an expert's weight is its share of those near it, without those chosen before; 0: of all.
    """

    router: Literal["softmax", "sigmoid"]
    adds_up: bool
    margin: float = 0.0


class ExpertGroups(NamedTuple):
    """Equal groups of experts in order: n of them, of which a token uses some, those with the highest scores.

    by_two: a group's score is the sum of its two best experts', instead of its best one's.
    """

    n: int = 1
    used: int = 1
    by_two: bool = False


ONE_GROUP = ExpertGroups()


@dataclass(frozen=True)
class DeltaSpec:
    """The shape of a gated delta net or a Mamba-2 layer: attention whose memory is a matrix of fixed size per head.

    In a Mamba-2 layer, B is the key, C the query and x the value; a group is a key head.
    The state of a layer is one float32 vector: the matrices [H_v, key_dim, value_dim], then the last conv_width - 1
    inputs of the convolution, [conv_width - 1, channels]. All zeros: nothing was read yet.
    """

    key_heads: int  # of queries and of keys
    value_heads: int
    key_dim: int  # values of a query or key head
    value_dim: int
    conv_width: int  # positions that the causal convolution sees, the current one included
    order: HeadOrder = "grouped"
    mamba: bool = False  # a Mamba-2 layer
    norm_groups: int = 1  # mamba: equal groups of values that are normed apart
    conv_bias: bool = False  # the convolution has a bias
    epsilon: float | None = None  # of the output's norm; None: of the model's norms

    @property
    def starts(self) -> tuple[int, int, int]:
        """The first channel of queries, keys and values: they follow in this order, and in the reverse in Mamba-2."""
        q, k, v = 0, self.key_width, 2 * self.key_width
        return (self.value_width + self.key_width, self.value_width, 0) if self.mamba else (q, k, v)

    @property
    def norm_size(self) -> int:
        """Weights of the norm of the output: one per value of a head, of all heads in Mamba-2."""
        return self.value_width if self.mamba else self.value_dim

    @property
    def key_width(self) -> int:
        """Values of all key heads of a position."""
        return self.key_heads * self.key_dim

    @property
    def value_width(self) -> int:
        """Values of all value heads of a position."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Values of a position that go through the convolution: q, k and v."""
        return 2 * self.key_width + self.value_width

    @property
    def matrix_size(self) -> int:
        """Numbers of the state's matrices."""
        return self.value_width * self.key_dim

    @property
    def state_size(self) -> int:
        """Numbers of a layer's state."""
        return self.matrix_size + (self.conv_width - 1) * self.channels

    @property
    def prepared_width(self) -> int:
        """Numbers of a position that its state changes by, on a GPU: q, k, v, and two for each value head."""
        return self.channels + 2 * self.value_heads

    def parts(self, state: F32) -> tuple[F32, F32]:
        """Return views of a state [state_size]: the matrices, and the convolution's last inputs."""
        matrices = state[: self.matrix_size].reshape(self.value_heads, self.key_dim, self.value_dim)
        return matrices, state[self.matrix_size :].reshape(self.conv_width - 1, self.channels)


@dataclass(frozen=True)
class ShortConvSpec:
    """The shape of a gated short convolution, as in LFM2: causal, per channel, between two multiplications.

    The state of a layer is one float32 vector: the last conv_width - 1 inputs of the convolution,
    [conv_width - 1, channels]. All zeros: nothing was read yet.
    """

    channels: int
    conv_width: int  # positions that the convolution sees, the current one included

    @property
    def state_size(self) -> int:
        """Numbers of a layer's state."""
        return (self.conv_width - 1) * self.channels


@dataclass(frozen=True)
class LatentSpec:
    """The shape of multi-head latent attention (MLA), which caches one vector per position for all heads.

    That vector has `rank` numbers, from which each head's key and value are products, then the rotated numbers that all
    keys share. Queries are multiplied by the heads' key matrices instead of the keys, and what attention returns, by
    their value matrices: the cached vectors are the keys and values of a single head.
    Source: DeepSeek-V2, arXiv 2405.04434, section 2.1 and appendix C.
    """

    rank: int  # numbers of a position that keys and values are products of
    key_dim: int  # numbers of a head's query and key before the rotated ones
    value_dim: int  # numbers of a head's value
    query_rank: int = 0  # numbers of a position that queries are products of; 0: of the layer's input
    epsilon: float = 1e-6  # of the norms of both
