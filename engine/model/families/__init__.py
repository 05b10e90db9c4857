"""Translate foreign configurations to ModelConfig and foreign tensor names to ours.

A family is one small file in a folder of this one; docs/adding-a-family.md explains how to add one.
Features that Hearth does not implement are refused by name, never ignored. Nothing here reads tensors.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Literal

from engine.config import ModelConfig
from engine.errors import ModelFormatError, UnsupportedModelError
from engine.model.families.dense import DENSE
from engine.model.families.encoders import ENCODERS
from engine.model.families.moe import MOE
from engine.model.families.recurrent import RECURRENT
from engine.model.families.varied import VARIED
from engine.model.family.family import ACTIVATION_KEY as ACTIVATION_KEY
from engine.model.family.family import THRESHOLD_KEY as THRESHOLD_KEY
from engine.model.family.family import Family, fields_from_gguf, fields_from_hf
from engine.model.family.plan import OWN_LAYOUT, Layout, in_own_terms, plan_drafts, plan_tensors
from engine.model.family.plan import Kind as Kind
from engine.model.family.plan import PlannedTensor as PlannedTensor
from engine.model.family.plan import own_draft_name as own_draft_name
from engine.model.family.plan import split_expert_name as split_expert_name
from engine.model.family.reading import Reader
from engine.model.family.sampling import sampling_from_gguf as sampling_from_gguf
from engine.model.family.sampling import sampling_from_hf as sampling_from_hf

FAMILIES: tuple[Family, ...] = (*DENSE, *MOE, *RECURRENT, *VARIED, *ENCODERS)

ActivationOrigin = Literal["config", "metadata", "family", "override"]

_SURPLUS = re.compile(
    r".*rotary_emb\.inv_freq|.*attn\.masked_bias|blk\.[0-9]+\.fc[12]\.weight|lm_head_profiler\.weight"
)
# Of encoders: heads that predict masked words or the next sentence, the layer behind the first token, a buffer.
_BESIDE_ENCODER = re.compile(r"(?:(?:bert|roberta)\.)?(?:pooler|cls|lm_head)\..*|.*\bposition_ids")
# Of files that hold more than the model: layers that draft tokens (MTP), towers for pictures and sound.
_DRAFTS = "mtp."
_TOWERS = ("model.visual.", "model.vision_tower.", "model.audio_tower.", "model.embed_vision.", "model.embed_audio.",
           "vision_tower.", "vision_model.", "multi_modal_projector.", "model.multi_modal_projector.")  # fmt: skip
_KEYS_AND_VALUES = tuple(
    f".{name}.weight"
    for name in ("self_attn.k_proj", "self_attn.v_proj", "self_attn.k_norm", "attn_k", "attn_v", "attn_k_norm")
)
_LAYER = re.compile(r"(?:model\.(?:language_model\.)?layers|blk)\.([0-9]{1,4})\.")

# Other models with experts. Naming them gives a better error than "unknown".
_WITH_EXPERTS = ("granitemoe", "olmoe", "dbrx")


# These names mean multimodal models in Hugging Face's format.
_WITH_PICTURES = ("llava", "mllama", "qwen2_vl", "qwen2_5_vl", "phi3_v")
# Keys that stand beside the text part's, and apply to it. Of the first two, the text part's own come first.
_BESIDE_TEXT = ("bos_token_id", "eos_token_id", "tie_word_embeddings", "architectures", "quantization_config")


def config_from_hf(config: Mapping[str, Any], generation: Mapping[str, Any]) -> ModelConfig:
    """Return the ModelConfig of a Hugging Face config.json. `generation`: generation_config.json or {}.

    Raises: ModelFormatError for a missing or wrong value, UnsupportedModelError for a feature that is not implemented.
    """
    read = Reader(config, "config.json")
    name = read.required("model_type", str)
    if name in _WITH_PICTURES:
        raise UnsupportedModelError(
            f"{name!r} models read pictures too; Hearth runs text models.",
            "Choose the model's GGUF file, which holds its text part alone, or a text model.",
        )
    if any(name in family.model_types_with_pictures for family in FAMILIES):
        text = read.required("text_config", dict)
        outer = {key: config[key] for key in _BESIDE_TEXT if key in config}
        tokens = {key: text[key] for key in _BESIDE_TEXT[:2] if key in text}
        return config_from_hf({"model_type": f"{name}_text", **text, **outer, **tokens}, generation)
    family = _family_of_class(read) or _find(name, {kind: one for one in FAMILIES for kind in one.model_types})
    return ModelConfig(**fields_from_hf(family, read, Reader(generation, "generation_config.json")))


def config_from_gguf(metadata: Mapping[str, Any], tensor_names: set[str]) -> ModelConfig:
    """Return the ModelConfig of a GGUF file's metadata.

    Raises: ModelFormatError for a missing or wrong value, UnsupportedModelError for a feature that is not implemented.
    """
    read = Reader(metadata, "the GGUF metadata")
    name, family = _family_of_gguf(read)
    return ModelConfig(**fields_from_gguf(family, read, name, tensor_names))


def check_architecture(metadata: Mapping[str, Any]) -> None:
    """Raise UnsupportedModelError for an unsupported GGUF architecture, ModelFormatError for none."""
    _family_of_gguf(Reader(metadata, "the GGUF metadata"))


def _family_of_gguf(read: Reader) -> tuple[str, Family]:
    name = read.required("general.architecture", str)
    # Models with experts may share an architecture with dense ones: Mixtral uses LLaMA's.
    experts = read.optional(f"{name}.expert_count", int, 0) > 0
    by_fitness = sorted(FAMILIES, key=lambda family: family.experts == experts)
    return name, _find(name, {arch: family for family in by_fitness for arch in family.architectures})


def activation_origin(config: ModelConfig, kind: Kind, metadata: Mapping[str, Any]) -> ActivationOrigin:
    """Return what determined the activation: configuration, GGUF metadata, or the family's default."""
    if kind == "bundle":
        return "config"
    if kind == "gguf":
        return "metadata" if metadata.get(ACTIVATION_KEY) is not None else "family"
    key = _family(config).hf_keys.get("hidden_act", "hidden_act")
    text = metadata.get("text_config")  # of a model with pictures
    return "config" if (text if isinstance(text, dict) else metadata).get(key) is not None else "family"


def planned_tensors(
    config: ModelConfig, kind: Kind, present: Collection[str] = (), one_expert: bool = False
) -> list[PlannedTensor]:
    """Return all tensors that the configuration needs, in graph order.

    present: names in the file, for families with several layouts; empty: the usual names. A bundle stores each tensor
    under our name and orientation, unfused. one_expert: as in `plan_tensors`.
    """
    if kind == "bundle":
        return [in_own_terms(tensor, config) for tensor in plan_tensors(config, OWN_LAYOUT, (), one_expert)]
    return plan_tensors(config, _layout(config, kind), present, one_expert)


def planned_drafts(
    config: ModelConfig, kind: Kind, present: Collection[str]
) -> tuple[ModelConfig, list[PlannedTensor]]:
    """Return the first layer that drafts tokens (MTP) as a model of one layer, and its tensors; none: there is none.

    config: of the model. It is a layer of the family, with attention, and with experts if the model has them.
    """
    own = draft_config(config)
    if kind == "bundle":
        plan = [in_own_terms(tensor, own) for tensor in plan_drafts(own, OWN_LAYOUT, config.n_layers, present)]
        return own, [replace(tensor, foreign_name=own_draft_name(tensor.foreign_name)) for tensor in plan]
    if not _layout(config, kind).drafts:
        return own, []
    return own, plan_drafts(own, _layout(config, kind), config.n_layers, present)


def n_draft_layers(config: ModelConfig, metadata: Mapping[str, Any]) -> int:
    """Return how many layers draft tokens according to config.json or GGUF metadata; 0 if Hearth runs none of them."""
    family, text = _family(config), metadata.get("text_config")
    values, layout, keys = metadata, family.gguf, [f"{arch}.nextn_predict_layers" for arch in family.architectures]
    if "general.architecture" not in metadata:
        values, layout = text if isinstance(text, dict) else metadata, family.hf
        keys = ["num_nextn_predict_layers", "mtp_num_hidden_layers"]
    found = [values[key] for key in keys if isinstance(values.get(key), int)]
    return max([0, *found]) if layout is not None and layout.drafts else 0


def draft_config(config: ModelConfig) -> ModelConfig:
    """Return the configuration of a model's layer that drafts tokens."""
    return replace(
        config, n_layers=1, delta=None, delta_layers=(), n_dense_layers=0, dense_d_ff=0, tied_embeddings=True,
        ffn_only_layers=(), mixer_only_layers=(), unrotated=(0,) if config.unrotated else (),
    )  # fmt: skip


def is_surplus(config: ModelConfig, foreign_name: str) -> bool:
    """Return whether a tensor outside the plan may be ignored.

    These are what surrounds an encoder, a copy of a tied head, rotary tables (computed here), layers that draft tokens,
    towers for pictures and sound, keys and values of layers that read those of another, and PowerInfer's predictors.
    """
    family = _family(config)
    if is_draft(config, foreign_name) or is_of_tower(config, foreign_name):
        return True
    heads = [layout.names["head"] for layout in (family.hf, family.gguf) if layout is not None]
    if config.tied_embeddings and foreign_name in heads:
        return True
    if not config.causal and _BESIDE_ENCODER.fullmatch(foreign_name):
        return True
    if _is_of_shared_kv(config, foreign_name):
        return True
    return bool(_SURPLUS.fullmatch(foreign_name))


def _is_of_shared_kv(config: ModelConfig, foreign_name: str) -> bool:
    """Return whether a tensor makes keys or values in a layer that reads another layer's; files have them unused."""
    layer = _LAYER.match(foreign_name)
    if layer is None or not config.n_layers - config.n_shared_kv_layers <= int(layer[1]) < config.n_layers:
        return False
    return foreign_name.endswith(_KEYS_AND_VALUES)


def is_draft(config: ModelConfig, foreign_name: str) -> bool:
    """Return whether a tensor belongs to a layer that drafts tokens (MTP), behind the model's layers."""
    layer = _LAYER.match(foreign_name)
    behind = layer is not None and int(layer[1]) >= config.n_layers
    return _family(config).drafts and (behind or foreign_name.startswith(_DRAFTS))


def is_of_tower(config: ModelConfig, foreign_name: str) -> bool:
    """Return whether a tensor belongs to a tower for pictures or sound beside the text model."""
    return bool(_family(config).model_types_with_pictures) and foreign_name.startswith(_TOWERS)


def _family(config: ModelConfig) -> Family:
    family = next((family for family in FAMILIES if family.name == config.family), None)
    if family is None:
        raise ModelFormatError(f"There is no model family {config.family[:60]!r}.")
    return family


def _layout(config: ModelConfig, kind: Kind) -> Layout:
    layout = _family(config).hf if kind == "safetensors" else _family(config).gguf
    if layout is None:
        raise UnsupportedModelError(f"{config.family} models are not known as {kind} files.")
    return layout


def _family_of_class(read: Reader) -> Family | None:
    """Return the family of the model's class, whose model_type may be that of its base model."""
    classes = read.optional("architectures", list, [])
    return next((family for family in FAMILIES if any(name in family.hf_architectures for name in classes)), None)


def _find(name: str, known: Mapping[str, Family]) -> Family:
    if name in known:
        return known[name]
    if name in _WITH_EXPERTS:
        raise UnsupportedModelError(
            f"{name!r} models have experts (MoE) of a kind that Hearth does not run.",
            f"Choose a dense model, or one of {', '.join(family.name for family in FAMILIES if family.experts)}.",
        )
    raise UnsupportedModelError(
        f"Hearth does not run the architecture {name[:60]!r} yet.",
        "Choose a model of another family, such as Llama, Qwen, Gemma, Mistral, DeepSeek, GLM or Granite.",
    )
