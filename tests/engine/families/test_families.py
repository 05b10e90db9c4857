"""Every family equals transformers: logits at every position, greedy tokens, pieces, cut caches, exact and dense."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_cover import of_cover
from family_models import (
    CASES,
    CONTEXT,
    PROMPT,
    SHAPE,
    STEPS,
    Reference,
    all_logits,
    greedy,
    make_reference,
    randomise,
)
from gguf_models import write_gguf
from support.repetitions import some_daily

from engine.config import ACTIVATIONS, Mode, ModelConfig
from engine.errors import ContextOverflowError, InvalidRequestError, ModelFormatError, UnsupportedModelError
from engine.executor.dense import DenseExecutor
from engine.executor.exact import ExactExecutor
from engine.loading.backends import Backend, choose_backend
from engine.model.families import config_from_gguf, config_from_hf, planned_tensors
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import StoredKernels, load_weights, open_model
from engine.session.generate import decode_one_token, prefill
from native_kernels.backend import PackedMatrix
from native_kernels.reference import ReferenceOperators

TOLERANCE = 2e-3  # of a logit, where it is a matter of which token is the greatest
CLOSE = 2e-4  # what these small models keep to; a wrong kind of GELU would stay within the tolerance above
OPS = ReferenceOperators()
INTERLEAVED = ("llama", "bamboo", "glm4", "smollm3", "ernie4_5", "granite", "granitehybrid", "command-r", "cohere2",
               "deepseek2", "mistral3", "mistral4", "llama4")  # in GGUF  # fmt: skip


# Every family's logits are compared every day, by the reference and by the CPU kernels.
IN_COVER = pytest.mark.parametrize("reference", of_cover(CASES), indirect=True, scope="module")


@pytest.fixture(scope="module", params=CASES)
def reference(request: pytest.FixtureRequest, references: Callable[[str], Reference]) -> Reference:
    return references(request.param)


@pytest.fixture(scope="module")
def model(reference: Reference) -> Transformer:
    opened = open_model(reference.folder)
    weights = load_weights(opened)
    kind = ExactExecutor if opened.config.has_some_zeros else DenseExecutor
    return Transformer(opened.config, weights, kind(opened.config, weights, OPS), OPS)


@pytest.fixture(scope="module")
def kernels() -> Backend:
    return choose_backend("kernels", 2)


def run(model: Transformer, tokens: np.ndarray, cache: KVCache, pieces: tuple[int, ...] = (1 << 30,)) -> np.ndarray:
    out, at = [], 0
    for size in itertools.cycle(pieces):
        ahead = max(0, len(tokens) - at - size)
        out.append(model.logits(model.forward(tokens[at : at + size], cache, ahead)))
        at += size
        if at >= len(tokens):
            return np.concatenate(out)
    raise AssertionError


def test_logits_at_every_position(reference: Reference, model: Transformer) -> None:
    assert model.config.activation == reference.case.activation
    error = np.abs(run(model, reference.tokens, KVCache(model.config, CONTEXT)) - reference.logits).max()
    assert error < CLOSE
    print(f"largest logit error {error:.1e}, logits up to {np.abs(reference.logits).max():.0f}")


@IN_COVER
def test_every_feature_matters(reference: Reference, model: Transformer) -> None:
    """What the family asks for beyond LLaMA changes these logits, so that leaving it out would be seen above."""
    config = model.config
    names = ["windows", "rope_scaling", "rope_theta_local", "rotary_dim", "attention_softcap", "logit_softcap",
             "embedding_scale", "qk_norm", "qk_norm_after", "parallel", "attention_temperature", "position_offset",
             "norm_eps", "gated_attention", "layer_scale", "router_margin",
             "chunked_windows", "temperature_of_unrotated", "weighed_inputs"]  # fmt: skip
    names += ["v_norm"] if not config.full_v_is_k else []
    names += ["gate_cutoffs"]
    names += ["norms"] if config.norms == "post" else []  # both: which weights there are says it
    names += ["attention_scale"] if config.attention_scale != config.head_dim**-0.5 else []
    plain = {field.name: field.default for field in fields(ModelConfig)} | {"norm_eps": 0.01}
    others: list[dict[str, Any]] = [{name: plain[name]} for name in names if getattr(config, name) != plain[name]]
    if config.rope_scaling is not None and config.rope_scaling.long_factors:  # as many as there are waves
        others = [other for other in others if "rotary_dim" not in other]
    for activation in ACTIVATIONS:
        if config.gate_cutoffs and not activation.startswith(("silu", "gelu")):
            continue  # makes zeros, which are not cut off
        if activation.endswith("-glu") == config.gated and activation != config.activation:
            others.append({"activation": activation, "activation_threshold": 0.4 * (activation == "fatrelu-glu")})
    if config.has_local_heads:  # layers with a window stay apart from the others
        others = [other for other in others if not {"windows", "rope_theta_local"} & other.keys()]
        others += [{"windows": tuple(CONTEXT * (one > 0) for one in config.windows)}, {"rope_theta_local": 200.0}]
    if config.windows and max(config.windows) > CONTEXT:  # too wide to be felt here
        others = [other for other in others if not {"windows", "chunked_windows"} & other.keys()]
    if config.attention_temperature is not None and config.attention_temperature.length > CONTEXT:
        felt = {"attention_temperature", "temperature_of_unrotated"}
        others = [other for other in others if not felt & other.keys()]
    if config.n_experts:
        others += [{"n_experts_used": config.n_experts_used - 1 or 2}]
        if not config.shared_apart:  # a norm behind the experts hides what multiplies them all
            others.append({"normed_routing": not config.normed_routing})
            others += [] if config.ffn_only_layers else [{"early_router": not config.early_router}]
        if config.router == "sigmoid" or not config.normed_routing:
            others.append({"router": "softmax" if config.router == "sigmoid" else "sigmoid"})
        others += [{"routing_scale": 1.0}] if config.routing_scale != 1.0 else []
        others += [{"unrotated": ()}] if config.unrotated else [{"unrotated": (3 if 1 in config.delta_layers else 1,)}]
    if config.delta is not None and config.delta.value_heads > config.delta.key_heads > 1:
        others.append({"delta": replace(config.delta, order="tiled")})
    if config.latent is not None:  # whose rotated numbers are those behind the latent vector
        others = [other for other in others if "rotary_dim" not in other]
        others.append({"rope_order": "halves" if config.rope_order == "interleaved" else "interleaved"})
        others += [{"n_groups": 1, "n_groups_used": 1}] if config.n_groups > 1 else []
    for other in others:
        changed = replace(config, **other)
        wrong = Transformer(changed, model.weights, DenseExecutor(changed, model.weights, OPS), OPS)
        logits = run(wrong, reference.tokens, KVCache(changed, CONTEXT))
        assert np.abs(logits - reference.logits).max() > 3 * CLOSE, str(other)


@IN_COVER
def test_greedy_tokens(reference: Reference, model: Transformer) -> None:
    top = np.sort(reference.steps, axis=-1)
    margins = top[:, -1] - top[:, -2]
    qualify = margins > 2 * TOLERANCE
    assert qualify.mean() >= 0.9
    assert len(set(reference.tokens[len(PROMPT) :])) > 1  # not one word over and over
    print(f"{qualify.mean():.0%} of the steps qualify, {len(set(reference.tokens[len(PROMPT) :]))} different tokens")
    cache = KVCache(model.config, CONTEXT)
    logits = run(model, PROMPT, cache)[-1]
    for step in range(STEPS):
        wanted = reference.tokens[len(PROMPT) + step]
        assert np.abs(logits - reference.steps[step]).max() < CLOSE
        if qualify[step]:
            assert logits.argmax() == wanted, f"step {step}"
        logits = run(model, np.array([wanted]), cache)[0]


# One by one: the greedy tokens, and a token between two pieces here.
@IN_COVER
@pytest.mark.parametrize("pieces", some_daily([(1,), (7, 1, 13), (3,)], [(7, 1, 13)]))
def test_prefill_in_odd_pieces(reference: Reference, model: Transformer, pieces: tuple[int, ...]) -> None:
    logits = run(model, reference.tokens, KVCache(model.config, CONTEXT), pieces)
    assert np.abs(logits - reference.logits).max() < CLOSE


@IN_COVER
def test_no_bit_depends_on_how_a_prompt_is_cut(reference: Reference, model: Transformer, kernels: Backend) -> None:
    config, weights, tokens = model.config, load_weights(open_model(reference.folder)), reference.tokens[:126]
    executor = type(model.executor)(config, weights, kernels.operators)
    own, results = Transformer(config, weights, executor, kernels.operators), []
    for cuts in ([], [7], [9, 41, 116], [17, 34, 64, 97], range(7, 119, 7)):  # fewer tokens are computed as answers
        cache = KVCache(config, CONTEXT)
        ahead = len(tokens) - np.array([*cuts, len(tokens)])
        parts = [own.forward(*part, cache, left) for *part, left in zip(np.split(tokens, cuts), ahead, strict=True)]
        results.append((np.concatenate(parts), cache.positions(0, len(tokens)), cache.state()))
    for result in results[1:]:
        for found, wanted in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(found, wanted)


@IN_COVER
def test_a_cache_cut_at_odd_places(reference: Reference, model: Transformer) -> None:
    if model.config.rope_scaling is not None and model.config.rope_scaling.kind == "dynamic":
        pytest.skip("what the cache holds depends on how long the sequence was that it was computed for")
    cache = KVCache(model.config, CONTEXT)
    tokens = reference.tokens
    for start, stop in itertools.pairwise((0, 1, 12, 71, 80, 91)):
        cache.remember()  # what is recurrent can be cut only there
        run(model, tokens[start:stop], cache)
    for kept in (80, 71, 12, 1, 0):
        cache.truncate(kept)
        run(model, tokens[::-1][:5].copy(), cache)  # something else was here
        cache.truncate(kept)
        logits = run(model, tokens[kept : kept + 31], cache, (5, 1, 17))
        assert np.abs(logits - reference.logits[kept : kept + 31]).max() < CLOSE


@IN_COVER
def test_exact_equals_dense(reference: Reference, model: Transformer) -> None:
    if not model.config.has_some_zeros:
        with pytest.raises(InvalidRequestError, match="makes no zeros"):
            ExactExecutor(model.config, model.weights, OPS)
        return
    dense = Transformer(model.config, model.weights, DenseExecutor(model.config, model.weights, OPS), OPS)
    exact = Transformer(model.config, model.weights, ExactExecutor(model.config, model.weights, OPS), OPS)
    wanted = run(dense, reference.tokens, KVCache(model.config, CONTEXT))
    counts = []
    for pieces in ((1,), (128,), (6, 7)):
        exact.executor.counters.reset()
        logits = run(exact, reference.tokens, KVCache(model.config, CONTEXT), pieces)
        assert np.abs(logits - wanted).max() < CLOSE
        counts.append((exact.executor.counters.computed, exact.executor.counters.fired))
    first, *others = counts
    assert all(np.allclose(first, other, rtol=2e-3) for other in others)
    assert np.isclose(dense.executor.counters.fired, first[1], rtol=2e-3)
    assert 0.05 < exact.executor.counters.fired_share < 0.8
    assert (first[0] > first[1]) == (model.config.activation == "drelu-glu")


def test_the_gguf_file_of_the_same_model(reference: Reference, model: Transformer, tmp_path: Path) -> None:
    if not reference.case.gguf:
        unknown = model.config.family == "mistral" or model.config.embedding_dim is not None
        with pytest.raises(UnsupportedModelError, match="not supported") if unknown else nullcontext():
            planned_tensors(model.config, "gguf")
        return
    opened = open_model(write_gguf(reference.folder, tmp_path / "m.gguf", reference.case))
    weights = load_weights(opened)
    packed = Transformer(opened.config, weights, DenseExecutor(opened.config, weights, OPS), OPS)
    assert opened.config.activation == reference.case.activation
    assert opened.config.rope_order == ("interleaved" if reference.case.gguf in INTERLEAVED else "halves")
    divisors = [weights.rope_factors, weights.rope_factors_long, weights.rope_factors_short]
    more = sum(len(values) for values in divisors if values is not None)
    if (few := model.config.layer_vocab_size) is not None:  # GGUF has rows for all tokens
        more += (model.config.vocab_size - few) * model.config.n_layers * model.config.layer_embedding_dim
    assert opened.parameters == open_model(reference.folder).parameters + more
    logits = run(packed, reference.tokens, KVCache(packed.config, CONTEXT), (41, 1))
    assert np.abs(logits - reference.logits).max() < CLOSE


@IN_COVER
@pytest.mark.parametrize("form", some_daily(["safetensors", "gguf"], ["safetensors"]))
def test_the_cpu_kernels_answer_alike(reference: Reference, kernels: Backend, form: str, tmp_path: Path) -> None:
    """A prompt in pieces and an answer token by token, from float32 where it lies: but another order of sums.

    Modes that skip neurons have down copied by neuron, where a load can do that.
    """
    if form == "gguf" and not reference.case.gguf:
        pytest.skip("GGUF has no architecture for this shape")
    path = reference.folder if form != "gguf" else write_gguf(reference.folder, tmp_path / "m.gguf", reference.case)
    opened = open_model(path)
    config, stored = opened.config, load_weights(opened, hold="mapped")
    copied = load_weights(opened, kernels=StoredKernels("as requested", kernels.transposed))
    assert config.n_experts or not copied.down_is_row_wise
    modes: tuple[Mode, ...] = ("exact", "dense") if config.has_some_zeros else ("dense",)
    for mode in modes:
        weights = copied if mode == "exact" else stored
        executor = (ExactExecutor if mode == "exact" else DenseExecutor)(config, weights, kernels.operators)
        decoder = kernels.decoder(config, weights, mode, executor.counters, None)
        assert decoder is not None
        model, cache = Transformer(config, weights, executor, kernels.operators, decoder), KVCache(config, CONTEXT)
        logits = prefill(model, PROMPT.tolist(), cache)
        for step, token in enumerate(reference.tokens[len(PROMPT) :].tolist()):
            assert np.abs(logits - reference.steps[step]).max() < CLOSE, f"{mode}, step {step}"
            logits = decode_one_token(model, token, cache)
        np.testing.assert_array_equal(cache.tokens[: cache.length], reference.tokens)
        assert executor.counters.tokens == len(reference.tokens)


@IN_COVER
def test_other_ways_in_which_gguf_files_hold_experts(reference: Reference, model: Transformer, tmp_path: Path) -> None:
    """One tensor for each, as in 2023; down neuron-major under its usual name, as PowerInfer's SmallThinker."""
    if not reference.case.gguf or not model.config.n_experts or reference.case.gguf in ("gpt-oss", "gemma4"):
        return  # they are younger than those ways
    for name in ("apart", "turned"):
        opened = open_model(write_gguf(reference.folder, tmp_path / f"{name}.gguf", reference.case, **{name: True}))
        weights = load_weights(opened, hold="mapped")
        expert, last = weights.layers[-1].experts[3], opened.config.n_layers - 1
        assert (expert.down_t is None) == (name == "apart")
        down = expert.down if name == "apart" else expert.down_t
        source = f"blk.{last}.ffn_down.3.weight" if name == "apart" else f"blk.{last}.ffn_down_exps.weight"
        assert np.shares_memory(down.data, opened.source.view(source))
        executor = (ExactExecutor if opened.config.has_zeros else DenseExecutor)(opened.config, weights, OPS)
        packed = Transformer(opened.config, weights, executor, OPS)
        logits = run(packed, reference.tokens, KVCache(packed.config, CONTEXT), (41, 1))
        assert np.abs(logits - reference.logits).max() < CLOSE


def test_the_plan_in_our_own_terms_is_what_is_loaded(model: Transformer) -> None:
    """Names and shapes under which a bundle holds each tensor."""
    tensors: dict[str, tuple[int, ...]] = {}
    for prefix, group in (("", model.weights), *((f"{i}.", layer) for i, layer in enumerate(model.weights.layers))):
        for name, value in vars(group).items():
            if isinstance(value, PackedMatrix) and value.n_rows:  # none: what a layer with an FFN alone lacks
                tensors[prefix + name] = (value.n_rows, value.n_cols)
            elif isinstance(value, np.ndarray):
                tensors[prefix + name] = value.shape
            elif name in ("streams_in", "streams_out"):
                one = name.replace("streams", "stream")
                tensors |= {f"{one}_{i}": (matrix.n_rows, matrix.n_cols) for i, matrix in enumerate(value, 1)}
    for i, layer in enumerate(model.weights.layers):
        parts = ("gate", "up", "down_t") if model.config.gated else ("up", "down_t")
        for name in parts if layer.experts else ():
            rows, width = model.config.n_neurons, model.config.d_model
            shapes = [getattr(ffn, name).data.shape for ffn in layer.experts]
            if layer.router is None:
                assert shapes == [(model.config.dense_d_ff, width)]
                tensors[f"{i}.{name}"] = shapes[0]
                continue
            assert set(shapes[: model.config.n_experts]) == {(model.config.d_ff, width)}
            shared = model.config.shared_d_ff
            assert shapes[model.config.n_experts :] == [(shared, width)] * (shared > 0)
            tensors[f"{i}.{name}"] = (rows, width)
        for name in {"gate", "up", "down"} & set(model.config.biases if layer.experts else ()):
            biases = [getattr(ffn, f"{name}_bias") for ffn in layer.experts]
            tensors[f"{i}.{name}_bias"] = np.stack(biases).shape
    if model.config.tied_embeddings:
        del tensors["head"]
    plan = planned_tensors(model.config, "bundle")
    assert {tensor.foreign_name: tensor.shape for tensor in plan} == tensors
    assert all(tensor.name == tensor.foreign_name or tensor.of_expert for tensor in plan)
    assert {tensor.treatment for tensor in plan} == {"as is"}


def test_a_powerinfer_file_of_the_same_model(reference: Reference, model: Transformer, tmp_path: Path) -> None:
    """Down is neuron-major and predictors lie beside; the activation is ReLU though nothing says so."""
    if not reference.case.gguf or reference.case.activation not in ("relu", "relu-glu", "drelu-glu"):
        return
    if model.config.n_experts:
        return  # PowerInfer's files of 2023 have none
    opened = open_model(write_gguf(reference.folder, tmp_path / "m.gguf", reference.case, powerinfer=True))
    weights = load_weights(opened)
    packed = Transformer(opened.config, weights, ExactExecutor(opened.config, weights, OPS), OPS)
    assert opened.config.activation == reference.case.activation
    logits = run(packed, reference.tokens, KVCache(packed.config, CONTEXT))
    assert np.abs(logits - reference.logits).max() < CLOSE


def test_names_without_the_outermost_module(tmp_path: Path) -> None:
    """As the first OPT files have them."""
    from safetensors.numpy import load_file, save_file

    reference = make_reference("opt", tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({name.removeprefix("model."): values for name, values in load_file(file).items()}, file)
    opened = open_model(tmp_path)
    weights = load_weights(opened)
    model = Transformer(opened.config, weights, DenseExecutor(opened.config, weights, OPS), OPS)
    logits = run(model, reference.tokens, KVCache(opened.config, CONTEXT))
    assert np.abs(logits - reference.logits).max() < CLOSE


def test_sixteen_bit_weights_of_fused_and_biased_families(references: Callable[[str], Reference]) -> None:
    """What is unpacked on use and cut out of fused matrices is the same weights."""
    for name in ("phi3", "opt", "gemma3", "falcon-40b"):
        reference = references(name)
        opened = open_model(reference.folder)
        weights = load_weights(opened, hold="f16")
        assert (weights.hold, weights.embedding.codec) == ("f16", "f16")
        model = Transformer(opened.config, weights, DenseExecutor(opened.config, weights, OPS), OPS)
        logits = run(model, reference.tokens, KVCache(opened.config, CONTEXT))
        assert np.abs(logits - reference.logits).max() < 0.02 * np.abs(reference.logits).max()


def test_gemma_2_of_27b_divides_by_the_mean_width() -> None:
    """GGUF does not say what the scores are divided by: it goes by the number of layers."""
    shape = {"block_count": 46, "embedding_length": 4608, "attention.head_count": 32, "attention.head_count_kv": 16,
             "attention.key_length": 128, "attention.value_length": 128, "feed_forward_length": 36864,
             "context_length": 8192, "attention.layer_norm_rms_epsilon": 1e-6, "vocab_size": 256000}  # fmt: skip
    metadata = {f"gemma2.{key}": value for key, value in shape.items()} | {"general.architecture": "gemma2"}
    assert config_from_gguf(metadata, set()).attention_scale == pytest.approx(144**-0.5)
    assert config_from_gguf(metadata | {"gemma2.block_count": 42}, set()).attention_scale == pytest.approx(128**-0.5)


def test_gemma_windows_where_the_metadata_has_a_pattern() -> None:
    shape = {"block_count": 4, "embedding_length": 32, "attention.head_count": 4, "feed_forward_length": 80,
             "context_length": 64, "attention.layer_norm_rms_epsilon": 1e-6, "vocab_size": 96,
             "attention.sliding_window": 9}  # fmt: skip
    metadata = {f"gemma3.{key}": value for key, value in shape.items()} | {"general.architecture": "gemma3"}
    key = "gemma3.attention.sliding_window_pattern"
    assert config_from_gguf(metadata, set()).windows == (9, 9, 9, 9)
    assert config_from_gguf(metadata | {key: 2}, set()).windows == (9, 0, 9, 0)
    assert config_from_gguf(metadata | {key: [False, True, True, False]}, set()).windows == (0, 9, 9, 0)


def test_positions_that_were_never_learned_are_refused(references: Callable[[str], Reference]) -> None:
    opened = open_model(references("opt").folder)
    weights = load_weights(opened)
    model = Transformer(opened.config, weights, DenseExecutor(opened.config, weights, OPS), OPS)
    cache = KVCache(opened.config, CONTEXT + 8)
    model.forward(np.arange(CONTEXT - 4) % 90, cache)
    with pytest.raises(ContextOverflowError, match=f"beyond the {CONTEXT} positions"):
        model.forward(np.arange(5), cache)
    assert model.forward(np.arange(4), cache).shape == (4, 32)


def test_no_plan_for_what_is_no_family() -> None:
    config = config_from_hf({**SHAPE, "model_type": "llama", "hidden_act": "silu"}, {})
    with pytest.raises(ModelFormatError, match="no model family 'x'"):
        planned_tensors(replace(config, family="x"), "gguf")
    with pytest.raises(ModelFormatError, match="a bias of 'x'"):
        replace(config, biases=("q", "x"))


_TOWER = {"hidden_size": 32, "intermediate_size": 32}
_QWEN_TOWER = {**_TOWER, "depth": 1, "num_heads": 2, "patch_size": 4, "out_hidden_size": SHAPE["hidden_size"],
               "deepstack_visual_indexes": [0]}  # fmt: skip
_MISTRAL_TOWER = {**_TOWER, "model_type": "pixtral", "num_hidden_layers": 1, "num_attention_heads": 2}
_QWEN_TEXT = {**SHAPE, "head_dim": 32, "rope_parameters": {
    "rope_type": "default", "rope_theta": 5e6, "mrope_section": [6, 5, 5], "mrope_interleaved": True}}  # fmt: skip
# The text parts and the towers. The published files of Gemma 3 omit the same of their text part, and vocab_size.
WITH_PICTURES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Gemma3": ({"hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 7, "sliding_window": 9,
                "vocab_size": 96, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}},
               {**_TOWER, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 56, "patch_size": 14}),
    "Mistral3": ({**SHAPE, **CASES["ministral3"].arguments, "model_type": "ministral3"}, _MISTRAL_TOWER),
    "Mistral3 before": ({**SHAPE, **CASES["mistral-whole"].arguments, "model_type": "mistral"}, _MISTRAL_TOWER),
    "Qwen3VL": ({**_QWEN_TEXT, "tie_word_embeddings": False}, _QWEN_TOWER),
    "Qwen3VLMoe": ({**_QWEN_TEXT, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 64},
                   _QWEN_TOWER),
}  # fmt: skip


@pytest.mark.parametrize("kind", [*WITH_PICTURES, "Qwen3VLMoe published"])
def test_the_text_part_of_models_with_pictures(kind: str, tmp_path: Path) -> None:
    """Qwen's published files store experts' matrices transposed."""
    import torch
    import transformers
    from safetensors.numpy import load_file, save_file

    text, tower = WITH_PICTURES[kind.removesuffix(" published")]
    kind, _, form = kind.partition(" ")
    config = getattr(transformers, f"{kind}Config")(text_config=dict(text), vision_config=dict(tower))
    theirs = getattr(transformers, f"{kind}ForConditionalGeneration")(config).eval().float()
    randomise(theirs.model.language_model)
    if not theirs.config.text_config.tie_word_embeddings:
        torch.nn.init.normal_(theirs.lm_head.weight, generator=torch.Generator().manual_seed(0))
    theirs.save_pretrained(tmp_path)
    if form == "published":
        tensors = load_file(tmp_path / "model.safetensors")
        for name in [name for name in tensors if "experts." in name]:
            tensors[name] = np.ascontiguousarray(tensors[name].swapaxes(1, 2))
        save_file(tensors, tmp_path / "model.safetensors")
    saved = json.loads((tmp_path / "config.json").read_text())
    kept = {"model_type": saved["text_config"]["model_type"], **text}
    (tmp_path / "config.json").write_text(json.dumps({**saved, "text_config": kept}))
    tokens, _ = greedy(theirs, PROMPT, STEPS)
    wanted = all_logits(theirs, tokens)
    opened = open_model(tmp_path)
    weights = load_weights(opened)
    model = Transformer(opened.config, weights, DenseExecutor(opened.config, weights, OPS), OPS)
    logits = run(model, tokens, KVCache(opened.config, CONTEXT))
    assert np.abs(logits - wanted).max() < CLOSE
    np.testing.assert_array_equal(logits[len(PROMPT) - 1 : -1].argmax(axis=-1), tokens[len(PROMPT) :])


def test_what_stands_beside_the_text_part_applies_to_it() -> None:
    text, beside = (
        {**WITH_PICTURES["Gemma3"][0], "bos_token_id": 5, "vocab_size": None},
        {"eos_token_id": [1, 106], "bos_token_id": 2},
    )
    config = {"model_type": "gemma3", "text_config": text, **beside}
    found = config_from_hf(config, {})
    assert (found.eos_token_ids, found.bos_token_id, found.vocab_size) == ((1, 106), 5, 262208)
    with pytest.raises(UnsupportedModelError, match="quantization_config"):
        config_from_hf({**config, "quantization_config": {"bits": 4}}, {})


@pytest.mark.parametrize("name", ["qwen3", "qwen3-moe"])
def test_gguf_files_of_the_text_part_of_qwen3_vl(
    name: str, references: Callable[[str], Reference], tmp_path: Path
) -> None:
    reference = references(name)
    opened = open_model(write_gguf(reference.folder, tmp_path / "m.gguf", reference.case))
    old, new = f"{reference.case.gguf}.", reference.case.gguf.replace("qwen3", "qwen3vl")
    metadata = {key.replace(old, f"{new}."): value for key, value in opened.source.metadata.items()}
    metadata |= {"general.architecture": new, f"{new}.rope.dimension_sections": [6, 5, 5, 0],
                 f"{new}.n_deepstack_layers": 3}  # fmt: skip
    assert config_from_gguf(metadata, set(opened.source.tensors)) == opened.config


def test_hunyuan_says_some_numbers_layer_by_layer() -> None:
    base = {**SHAPE, "model_type": "hunyuan_v1_moe", "hidden_act": "silu", "num_experts": 4, "moe_topk": [2, 2, 2],
            "moe_intermediate_size": [80, 80, 80], "num_shared_expert": [1, 1, 1]}  # fmt: skip
    config = config_from_hf(base, {})
    assert (config.n_experts, config.n_experts_used, config.d_ff, config.shared_d_ff) == (4, 2, 80, 80)
    for changes in ({"moe_topk": [2, 1, 2]}, {"moe_intermediate_size": 64}, {"num_shared_expert": [2, 2, 2]},
                    {"use_cla": True}):  # fmt: skip
        with pytest.raises(UnsupportedModelError, match=r"not one whole number|does not run"):
            config_from_hf(base | changes, {})
    for changes in ({"num_experts": ["4"]}, {"moe_topk": None}):
        with pytest.raises(ModelFormatError, match=r"expected is a whole number|lacks"):
            config_from_hf(base | changes, {})
    with pytest.raises(ModelFormatError, match=r"alpha is 0\.5"):
        config_from_hf(base | {"rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 0.5}}, {})
