"""Check the fields of a ModelConfig that describe gated delta nets, latent attention, groups of experts, varied layers,
and encoders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.errors import ModelFormatError

if TYPE_CHECKING:
    from engine.config import ModelConfig

_DELTA_CAPS = {"key_heads": 1024, "value_heads": 1024, "key_dim": 1024, "value_dim": 1024, "conv_width": 64}
_MOST_NORM_GROUPS = 1024
_LATENT_CAPS = {"rank": 1024, "key_dim": 1024, "value_dim": 1024}
_MOST_QUERY_RANK = 1 << 16
_MOST_TOKEN_TYPES = 1024


def check_delta(config: ModelConfig) -> None:
    """Raise ModelFormatError for impossible gated delta nets."""
    spec, layers = config.delta, config.delta_layers
    if (config.recurrence is None) != (not layers) or any(not 0 <= layer < config.n_layers for layer in layers):
        raise ModelFormatError(f"The model's layers {str(layers)[:60]} that keep a state are invalid.")
    if list(layers) != sorted(set(layers)) or len(layers) == config.n_layers:
        raise ModelFormatError("A model with layers that keep a state has some layers with attention too, each once.")
    _check_parts(config)
    _check_short_conv(config)
    if config.recurrence is not None and (config.norm != "rms" or config.norms != "pre" or config.parallel):
        raise ModelFormatError("A model with layers that keep a state has an RMS norm before each block.")
    if spec is None:
        return
    _check_sizes("Mamba-2 layer" if spec.mamba else "gated delta net", spec, _DELTA_CAPS)
    if spec.epsilon is not None and not 0 < spec.epsilon < 1:
        raise ModelFormatError(f"The epsilon {spec.epsilon!r} of a norm is out of range.")
    groups = spec.norm_groups
    if not _is_whole(groups) or not 1 <= groups <= _MOST_NORM_GROUPS or spec.value_width % groups:
        raise ModelFormatError(f"{spec.value_width} values cannot be normed in {groups!r} equal groups.")
    if spec.value_heads % spec.key_heads:
        raise ModelFormatError(f"{spec.value_heads} value heads cannot share {spec.key_heads} key heads.")


def _check_short_conv(config: ModelConfig) -> None:
    """Raise ModelFormatError for an impossible short convolution."""
    spec = config.short_conv
    if spec is None:
        return
    _check_sizes("short convolution", spec, {"conv_width": _DELTA_CAPS["conv_width"], "channels": config.d_model})
    if spec.channels != config.d_model or config.delta is not None or config.latent is not None:
        raise ModelFormatError(f"A short convolution of {spec.channels} channels does not fit the model's layers.")


def _check_parts(config: ModelConfig) -> None:
    """Raise ModelFormatError for impossible layers without attention and state, or without an FFN."""
    alone, without = config.ffn_only_layers, config.mixer_only_layers
    if not alone and not without:
        return
    for layers in (alone, without):
        if list(layers) != sorted(set(layers)) or not all(_is_whole(i) and 0 <= i < config.n_layers for i in layers):
            raise ModelFormatError(
                f"The list of layers with only an FFN, or without one, is invalid: {str(layers)[:60]}."
            )
    if {*alone} & {*without, *config.delta_layers} or len(without) == config.n_layers:
        raise ModelFormatError("Each layer of a model has attention, a state or an FFN, and some layers have an FFN.")
    if config.n_attention_layers < 1:
        raise ModelFormatError("None of the model's layers has attention; Hearth runs models with some.")
    others = config.parallel or config.early_router or config.shared_apart or config.n_shared_kv_layers
    if config.norms != "pre" or others or config.n_dense_layers or config.d_ff_by_layer or config.layer_embedding_dim:
        raise ModelFormatError("Layers with an FFN alone, or none, do not fit the model's other layers.")


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
    others = (config.qk_norm, config.gated_attention, config.windows, config.recurrence, config.attention_sinks)
    if config.norm != "rms" or any(others) or {"q", "k", "v", "o"} & set(config.biases):
        raise ModelFormatError("Latent attention has no windows, sinks, gates, biases or other norms than its own.")


def check_groups(config: ModelConfig) -> None:
    """Raise ModelFormatError for impossible groups of experts, or an impossible margin of their router."""
    groups, used = config.n_groups, config.n_groups_used
    whole = all(isinstance(one, int) and not isinstance(one, bool) for one in (groups, used))
    if not 0 <= config.router_margin < 2:
        raise ModelFormatError(f"The margin {config.router_margin!r} of the model's router is out of range.")
    if not whole or not 1 <= used <= groups or (groups > 1 and config.n_experts % groups):
        raise ModelFormatError(f"{used!r} of {groups!r} groups of {config.n_experts} experts are invalid.")
    each = config.n_experts // groups
    if groups > 1 and (each * used < config.n_experts_used or each < 2):
        raise ModelFormatError(f"{used} groups of {each} experts are too few for {config.n_experts_used} per token.")


def check_layers(config: ModelConfig) -> None:
    """Raise ModelFormatError for impossible layers with a window, shared keys and values, or inputs of layers."""
    heads, size = config.local_kv_heads or config.n_kv_heads, config.local_head_dim or config.head_dim
    of_windows = config.full_v_is_k or (heads, size) != (config.n_kv_heads, config.head_dim)
    if not (_is_whole(heads) and _is_whole(size) and heads >= 1 and 2 <= size <= 1024):
        raise ModelFormatError(f"Layers with a window have {heads!r} key-value heads of {size!r} values.")
    if config.local_head_dim is not None and config.rope_theta_local is None:
        raise ModelFormatError("Layers with a window have heads of their own size, and no rotary base for them.")
    if config.n_heads % heads or size % 2 or (of_windows and (not config.windows or config.positions != "rope")):
        raise ModelFormatError(f"{config.n_heads} heads with {heads} key-value heads of {size} values are invalid.")
    if (config.v_norm and config.norm != "rms") or (config.full_v_is_k and not config.v_norm):
        raise ModelFormatError("A model whose values are normed, or are its keys, has no RMS norm for them.")
    shared, kinds = config.n_shared_kv_layers, [config.window(layer) is None for layer in range(config.n_layers)]
    if not _is_whole(shared) or not 0 <= shared < config.n_layers or (shared and config.recurrence):
        raise ModelFormatError(f"{shared!r} of {config.n_layers} layers cannot share keys and values of others.")
    if not set(kinds[config.n_layers - shared :]) <= set(kinds[: config.n_layers - shared]):
        raise ModelFormatError(f"The last {shared} layers share keys and values of a kind that no other layer has.")
    extra = config.layer_embedding_dim
    if not _is_whole(extra) or not 0 <= extra <= 1 << 16:
        raise ModelFormatError(f"The model's layer_embedding_dim is {extra!r}; up to {1 << 16} are possible.")
    if extra and not (
        config.gated and config.norms == "both" and config.norm == "rms" and config.embedding_dim is None
    ):
        raise ModelFormatError("A model with per-layer embeddings has gated FFNs between RMS norms.")
    widths = config.d_ff_by_layer
    if widths and (len(widths) != config.n_layers or max(widths) != config.d_ff or config.n_experts):
        raise ModelFormatError(f"The widths {str(widths)[:60]} of the FFNs do not fit {config.n_layers} layers.")
    if not all(_is_whole(width) and width >= 1 for width in widths):
        raise ModelFormatError(f"The widths {str(widths)[:60]} of the FFNs are not numbers of neurons.")


def check_streams(config: ModelConfig) -> None:
    """Raise ModelFormatError for impossible residual streams, residuals beside attention, or cut-offs of gates."""
    streams, rank, cutoffs, few = config.n_streams, config.laurel_rank, config.gate_cutoffs, config.layer_vocab_size
    plain = config.norm == "rms" and config.norms == "both" and not config.n_experts and config.embedding_dim is None
    if not _is_whole(streams) or not 1 <= streams <= 8 or (streams > 1 and not (plain and config.layer_embedding_dim)):
        raise ModelFormatError(f"{streams!r} residual streams are invalid in this model.")
    if not _is_whole(rank) or not 0 <= rank <= 1 << 16 or (rank and not plain):
        raise ModelFormatError(f"A residual of the rank {rank!r} beside attention is invalid in this model.")
    if few is not None and not (_is_whole(few) and 1 <= few <= config.vocab_size):
        raise ModelFormatError(f"{few!r} of {config.vocab_size} tokens cannot have layer embeddings.")
    sound = all(isinstance(one, float) and (one == 0 or 0.01 < one < 10) for one in cutoffs)
    if cutoffs and (len(cutoffs) != config.n_layers or not sound or config.has_zeros or not config.gated):
        raise ModelFormatError(f"Gates cut off {str(cutoffs)[:60]} deviations above their mean are invalid.")


def _is_whole(value: object) -> bool:
    """Return whether an external value is a whole number; booleans are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _check_sizes(what: str, spec: object, caps: Mapping[str, int]) -> None:
    for name, cap in caps.items():
        value = getattr(spec, name)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= cap:
            raise ModelFormatError(f"The {what}'s {name} is {value!r}; 1 to {cap} are possible.")


def check_encoder(config: ModelConfig) -> None:
    """Raise ModelFormatError for encoders with features of decoders, and for decoders with those of encoders."""
    if config.causal:
        unfit = config.input_norm or config.token_types > 0
    else:
        of_decoders = (
            config.windows, config.recurrence, config.latent, config.n_experts, config.attention_temperature,
            config.n_shared_kv_layers, config.layer_embedding_dim, config.rope_scaling, config.attention_sinks,
        )  # fmt: skip
        unfit = any(of_decoders) or config.n_streams > 1 or not config.tied_embeddings
    if unfit or not 0 <= config.token_types <= _MOST_TOKEN_TYPES:
        raise ModelFormatError("The model is described partly as an encoder and partly as a decoder.")
