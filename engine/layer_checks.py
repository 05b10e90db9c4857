"""Check the fields of a ModelConfig that describe gated delta nets, latent attention and groups of experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.errors import ModelFormatError

if TYPE_CHECKING:
    from engine.config import ModelConfig

_DELTA_CAPS = {"key_heads": 1024, "value_heads": 1024, "key_dim": 1024, "value_dim": 1024, "conv_width": 64}
_LATENT_CAPS = {"rank": 1024, "key_dim": 1024, "value_dim": 1024}
_MOST_QUERY_RANK = 1 << 16


def check_delta(config: ModelConfig) -> None:
    """Raise ModelFormatError for impossible gated delta nets."""
    spec, layers = config.delta, config.delta_layers
    if (spec is None) != (not layers) or any(not 0 <= layer < config.n_layers for layer in layers):
        raise ModelFormatError(f"The model's layers {str(layers)[:60]} with a gated delta net are senseless.")
    if list(layers) != sorted(set(layers)) or len(layers) == config.n_layers:
        raise ModelFormatError("A model with gated delta nets has some layers with attention too, each once.")
    if spec is None:
        return
    _check_sizes("gated delta net", spec, _DELTA_CAPS)
    if spec.value_heads % spec.key_heads:
        raise ModelFormatError(f"{spec.value_heads} value heads cannot share {spec.key_heads} key heads.")
    if config.norm != "rms" or config.norms != "pre" or config.parallel:
        raise ModelFormatError("A model with gated delta nets has an RMS norm before each block.")


def check_latent(config: ModelConfig) -> None:
    """Raise ModelFormatError for impossible latent attention."""
    spec = config.latent
    if spec is None:
        return
    _check_sizes("latent attention", spec, _LATENT_CAPS)
    rank = spec.query_rank
    if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank <= _MOST_QUERY_RANK:
        raise ModelFormatError(f"The latent attention's query_rank is {rank!r}; 0 to {_MOST_QUERY_RANK} are possible.")
    if config.n_kv_heads != 1 or config.head_dim != spec.rank + config.rotated or config.positions != "rope":
        raise ModelFormatError(
            f"Latent attention caches one key of {spec.rank} and {config.rotated} rotated numbers; the model has "
            f"{config.n_kv_heads} of {config.head_dim}."
        )
    others = (config.qk_norm, config.gated_attention, config.windows, config.delta, config.attention_sinks)
    if config.norm != "rms" or any(others) or {"q", "k", "v", "o"} & set(config.biases):
        raise ModelFormatError("Latent attention has no windows, sinks, gates, biases or other norms than its own.")


def check_groups(config: ModelConfig) -> None:
    """Raise ModelFormatError for impossible groups of experts."""
    groups, used = config.n_groups, config.n_groups_used
    whole = all(isinstance(one, int) and not isinstance(one, bool) for one in (groups, used))
    if not whole or not 1 <= used <= groups or (groups > 1 and config.n_experts % groups):
        raise ModelFormatError(f"{used!r} of {groups!r} groups of {config.n_experts} experts are senseless.")
    each = config.n_experts // groups
    if groups > 1 and (each * used < config.n_experts_used or each < 2):
        raise ModelFormatError(f"{used} groups of {each} experts are too few for {config.n_experts_used} per token.")


def _check_sizes(what: str, spec: object, caps: Mapping[str, int]) -> None:
    for name, cap in caps.items():
        value = getattr(spec, name)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= cap:
            raise ModelFormatError(f"The {what}'s {name} is {value!r}; 1 to {cap} are possible.")
