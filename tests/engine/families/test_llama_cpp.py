"""Every family that llama.cpp knows against llama.cpp itself, from the same GGUF files. transformers settles disputes.

Figures are shares of the root mean square of llama.cpp's logits, which is near 8 for all of these models. llama.cpp
computes in its own precision, and the tolerances follow from it:

- F32 weights: float32 throughout, 1e-5. GELU is the exception: it is looked up in a table of float16 (2^-11 of a
  value), and Falcon's is the approximation by tanh.
- F16 weights: what goes into a product is rounded to float16, by 2^-11 of a value at most; some twenty products one
  after another make 1e-3 of the root mean square, and a single logit stays below ten times that.
- Q8_0 and Q4_0 weights: what goes into a product is rounded to 8 bits in blocks of 32, in steps of 1/127 of the
  block's greatest. That is 1/127/sqrt(12) = 0.23 % of the greatest, 0.5 % of the block's root mean square; by twenty
  products 2.2 %. Norms of queries and keys, and seven layers, make it more. Rounded in the same way, ours must be
  theirs to 1e-4, until a last bit of a sum has thrown a value over the edge between two steps.
- K-quants and IQ4_XS: the same in blocks of 256, whose greatest is greater.
- Families of 2025 and 2026: F32 alone. Where llama.cpp takes sizes for granted, the tiny models have them (`LATER`).
- Experts: where two of them score nearly the same, that rounding lets one side choose the one and the other the other,
  which changes that position as much as one expert counts, and later ones by attention: of five layers' worth, 4 in 10.
  Routers are F32 in any file.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_models import CASES, CONTEXT, LONGROPE, PROMPT, Reference, make_reference
from gguf_models import write_gguf
from samples.recoded_gguf import recode

from engine.executor.dense import DenseExecutor
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import load_weights, open_model
from native_kernels.backend import F32, PackedMatrix
from native_kernels.codecs import CODECS
from native_kernels.reference import ReferenceOperators

pytestmark = pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed")

NAMES = ("llama", "llama-linear", "llama-3", "llama-yarn", "mistral-whole", "qwen2", "qwen3", "gemma2", "gemma3",
         "phi3", "phi3-longrope", "falcon-7b", "falcon-40b")  # fmt: skip
WITH_EXPERTS = ("mixtral", "qwen2-moe", "qwen3-moe", "smallthinker-4b", "smallthinker-21b")
WIDER = {"hidden_size": 64, "intermediate_size": 160}  # rows of whole blocks
_LOCAL, _FULL = "sliding_attention", "full_attention"
_OLMO3 = {  # heads of d / n, and one base for all layers
    "head_dim": 8, "rope_parameters": CASES["olmo3"].arguments["rope_parameters"] | {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0}},
}  # fmt: skip
_HEADS_OF_8 = {"linear_key_head_dim": 8, "linear_value_head_dim": 8}  # its delta nets have values as wide as keys
_SIGMOID = {"deepseek2.expert_gating_func": 2}  # from config.json's scoring_func, which transformers does not write
_GEMMA3N = {  # 20 layers with keys and values of their own, a window in 4 of 5, cut-offs in 10, embeddings of 256
    "num_hidden_layers": 25, "num_kv_shared_layers": 5, "hidden_size_per_layer_input": 256,
    "layer_types": [*[_LOCAL] * 4, _FULL] * 5, "activation_sparsity_pattern": [0.95] * 10 + [0.0] * 15,
}  # fmt: skip
# Changes of the shape, and keys that llama.cpp's converter writes besides.
LATER: dict[str, tuple[dict[str, Any], dict[str, str | int]]] = {
    "cohere2": ({}, {}), "command-r": ({}, {}),
    "deepseek-v2": ({"n_group": 1, "topk_group": 1, "topk_method": "greedy"}, {}),  # with groups, it takes the sum
    "deepseek-v2-lite": ({"num_hidden_layers": 27}, {}),  # which it knows by that number
    "deepseek-v3": ({}, _SIGMOID), "ernie4.5": ({}, {}),
    "exaone4": ({"head_dim": 8, "num_hidden_layers": 64}, {}),  # windows in models of 64 layers alone
    "exaone4-whole": ({}, {}), "gemma3n": (_GEMMA3N, {}), "gemma4": ({}, {}),
    "gemma4-e": ({"num_hidden_layers": 6, "layer_types": [_LOCAL, _FULL] * 3}, {}),  # its last two share their kinds
    "gemma4-moe": ({}, {}), "glm4": ({}, {}), "glm4-moe": ({}, {}), "glm4-moe-air": ({}, {}),
    "glm4-moe-lite": ({}, _SIGMOID), "glm4-plain": ({}, {}), "granite": ({}, {}), "granite-hybrid": ({}, {}),
    "granite-hybrid-moe": ({}, {}), "hunyuan": ({}, {}), "hunyuan-moe": ({}, {}), "lfm2": ({}, {}),
    "lfm2-moe": ({}, {}), "llama4-interleaved": ({}, {}), "minimax-m2": ({}, {}), "ministral3": ({}, {}),
    "mistral4": ({}, {"mistral4.attention.temperature_length": 32}), "nemotron-h": ({}, {}),
    "nemotron-h-moe": ({}, {}), "olmo2": ({}, {}), "olmo3": (_OLMO3, {}),
    "phi4-mini": ({}, {}), "qwen3-next": (_HEADS_OF_8, {}), "qwen3.5": (_HEADS_OF_8, {}),
    "qwen3.5-moe": (_HEADS_OF_8, {}), "seed-oss": ({}, {}), "smollm3": ({}, {}),
}  # fmt: skip
STEPS = 32
CLOSE = 2e-4  # of a logit, to transformers


@dataclass(frozen=True)
class Tolerance:
    """Of a single logit and of the root mean square; at how many of the 32 steps the margin must be wider than twice.

    9 in 10 where weights are not quantised. Rounding to 8 bits is wider than many a margin between random logits.
    """

    single: float
    mean: float
    decided: int
    positions: float = 1.0  # share of them whose logits are within `single`


# Q8_0 and Q4_0: a tenth above what was measured in the worse of the two, and a step below the fewest decided.
EIGHT_BITS = {
    "llama": Tolerance(0.078, 0.0155, 20), "llama-linear": Tolerance(0.082, 0.0155, 15),
    "llama-3": Tolerance(0.093, 0.0175, 22), "llama-yarn": Tolerance(0.093, 0.0175, 17),
    "mistral-whole": Tolerance(0.078, 0.0155, 20), "qwen2": Tolerance(0.084, 0.0165, 15),
    "qwen3": Tolerance(0.185, 0.038, 13), "gemma2": Tolerance(0.155, 0.03, 11), "gemma3": Tolerance(0.185, 0.033, 9),
    "phi3": Tolerance(0.08, 0.0155, 19), "phi3-longrope": Tolerance(0.092, 0.0185, 18),
    "falcon-7b": Tolerance(0.087, 0.0165, 12), "falcon-40b": Tolerance(0.098, 0.0185, 18),
}  # fmt: skip


def tolerance(name: str, codec: str) -> Tolerance:
    gelu = CASES[name].activation.startswith("gelu")
    match codec:
        case "f32":
            return Tolerance(5e-3, 1e-3, 29) if gelu else Tolerance(1e-4, 1e-5, 29)
        case "f16":
            return Tolerance(1e-2, 2e-3, 27 if name.startswith("smallthinker") else 29)
        case _ if name in WITH_EXPERTS:
            return Tolerance(0.1, 0.1, 10, positions=0.6 if name == "smallthinker-21b" else 0.8)
        case _:
            return EIGHT_BITS[name]


class AsLlamaCpp(ReferenceOperators):
    """Rounds what goes into a product the way llama.cpp does for weights in the same codec."""

    def matmul(self, x: F32, w: PackedMatrix) -> F32:
        if w.codec in ("f16", "bf16"):
            x = w.block_codec.decode(w.block_codec.encode(np.ascontiguousarray(x)))
        elif w.block_codec.block_size == 256:
            x = _in_256_steps(x)
        elif w.codec in ("q4_1", "q5_1"):
            return super().matmul(_in_8_bits(x), w) + _rounded_sums(x, w)
        elif w.codec != "f32":
            x = _in_8_bits(x)
        return super().matmul(x, w)


class WithTheirGelu(ReferenceOperators):
    """Looks GELU up in a table of float16, as llama.cpp does, from -10 to 10."""

    def gelu_tanh(self, x: F32) -> F32:
        looked_up = super().gelu_tanh(x.astype(np.float16).astype(np.float32)).astype(np.float16).astype(np.float32)
        out: F32 = np.where(x <= -10, np.float32(0), np.where(x >= 10, x, looked_up))
        return out


def _in_8_bits(x: F32) -> F32:
    return CODECS["q8_0"].decode(CODECS["q8_0"].encode(np.ascontiguousarray(x)))


def _rounded_sums(x: F32, w: PackedMatrix) -> F32:
    """What it adds that a block's least value is multiplied with the block's sum, which is kept as a float16."""
    blocks = x.reshape(len(x), -1, 32)
    step = np.abs(blocks).max(axis=-1) / np.float32(127)
    count = np.rint(blocks / np.maximum(step, np.float32(1e-30))[..., None]).sum(axis=-1)
    kept = (step * count).astype(np.float16).astype(np.float32)
    least = np.ascontiguousarray(w.data.reshape(w.n_rows, -1, w.block_codec.type_size)[:, :, 2:4]).view(np.float16)
    out: F32 = (kept - step.astype(np.float16).astype(np.float32) * count) @ least[..., 0].astype(np.float32).T
    return out


def _in_256_steps(x: F32) -> F32:
    """Through 8 bits in blocks of 256, whose scale is a float32: what K-quants are multiplied with."""
    blocks = x.reshape(len(x), -1, 256)
    greatest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=-1, keepdims=True), -1)
    steps = np.float32(-127) / greatest
    rounded: F32 = (np.minimum(127, np.rint(blocks * steps)) * (1 / steps)).reshape(x.shape)
    return rounded


@pytest.fixture(scope="module", params=NAMES + WITH_EXPERTS)
def reference(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return wider_reference(request.param, tmp_path_factory.mktemp(request.param))


def wider_reference(name: str, folder: Path) -> Reference:
    changes: dict[str, Any] = dict(WIDER)
    if CASES[name].own_shape:
        del changes["intermediate_size"]
    if name in ("llama-3", "phi3-window"):
        changes["head_dim"] = 16
    if name == "phi3-longrope":  # heads are twice as wide
        changes["rope_parameters"] = {k: v * 2 if isinstance(v, list) else v for k, v in LONGROPE.items()}
    if name.startswith("smallthinker"):
        del changes["intermediate_size"]  # config.json has it by another name, and it is wide enough
    return make_reference(name, folder / "hf", changes)


def in_codec(reference: Reference, codec: str) -> Path:
    """The model as GGUF; without a vocabulary, as only ids go in."""
    folder = reference.folder.parent
    plain = folder / "plain.gguf"
    if not plain.exists():
        write_gguf(reference.folder, plain, reference.case)
    return recode(plain, folder / f"{codec}.gguf", codec, {"tokenizer.ggml.model": "none"})


def theirs(path: Path, tokens: np.ndarray, steps: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """llama.cpp's logits of every position, and the tokens, with `steps` greedy ones behind them."""
    import llama_cpp

    f32 = 0  # of keys and values in its cache
    model = llama_cpp.Llama(
        str(path), n_ctx=CONTEXT, n_batch=CONTEXT, n_ubatch=CONTEXT, logits_all=True, n_threads=1, n_threads_batch=1,
        type_k=f32, type_v=f32, flash_attn=False, verbose=False,
    )  # fmt: skip
    try:
        fed = [int(token) for token in tokens]
        model.eval(fed)
        for _ in range(steps):
            fed.append(int(np.argmax(model.scores[len(fed) - 1])))
            model.eval(fed[-1:])
        return np.array(model.scores[: len(fed)], np.float32), np.array(fed)
    finally:
        model.close()


def ours(path: Path, tokens: np.ndarray, pieces: list[int], operators: ReferenceOperators | None = None) -> np.ndarray:
    """The logits of every position, from the weights as the file stores them."""
    opened, ops = open_model(path), operators or ReferenceOperators()
    weights, config = load_weights(opened, hold="mapped"), opened.config
    if config.gate_cutoffs and operators:  # its deviation is that of a sample: of n - 1 gates
        sample = (config.d_ff / (config.d_ff - 1)) ** 0.5
        config = replace(config, gate_cutoffs=tuple(cutoff * sample for cutoff in config.gate_cutoffs))
    model = Transformer(config, weights, DenseExecutor(config, weights, ops), ops)
    cache = KVCache(config, CONTEXT)
    parts = np.split(tokens, np.cumsum(pieces)[:-1])
    out = []
    for part in parts:
        ahead = CONTEXT - cache.length - len(part)  # llama.cpp chooses LongRoPE's divisors by its context
        out.append(model.logits(model.forward(part, cache, ahead)))
    return np.concatenate(out)


def one_by_one(path: Path) -> list[float]:
    """Of eight tokens, each by itself: the largest difference, once what goes into a product is rounded as theirs."""
    differences = []
    for token in PROMPT[:8]:
        expected, _ = theirs(path, np.array([token]))
        difference = ours(path, np.array([token]), [1], AsLlamaCpp()) - expected
        differences.append(float(np.abs(difference).max()) / root_mean_square(expected))
    return differences


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


@pytest.mark.parametrize("codec", ["f32", "f16", "q8_0", "q4_0"])
def test_logits_and_greedy_tokens(reference: Reference, codec: str, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["reference"]
    path = in_codec(reference, codec)
    agrees(path, tolerance(name, codec), f"{name} {codec}")
    if codec == "f32":
        assert np.abs(ours(path, reference.tokens, [CONTEXT]) - reference.logits).max() < CLOSE


def agrees(path: Path, allowed: Tolerance, what: str) -> None:
    """Logits of the prompt and of 32 greedy steps behind it, and the steps whose margin is wide enough."""
    expected, tokens = theirs(path, PROMPT, STEPS)
    found = ours(path, tokens, [len(PROMPT)] + [1] * STEPS)
    scale = root_mean_square(expected)
    difference = (found - expected) / scale
    top = np.sort(expected[-STEPS - 1 : -1], axis=1)
    decided = (top[:, -1] - top[:, -2]) / scale > 2 * allowed.single
    within = np.abs(difference).max(axis=1) < allowed.single
    print(
        f"{what}: largest {np.abs(difference).max():.1e}, root mean square {root_mean_square(difference):.1e}, "
        f"{decided.sum()} of {STEPS} steps decided, {within.mean():.0%} of the positions within {allowed.single}"
    )
    assert within.mean() >= allowed.positions
    assert root_mean_square(difference) < allowed.mean
    assert decided.sum() >= allowed.decided
    decided &= within[-STEPS - 1 : -1]
    chosen = found[-STEPS - 1 : -1].argmax(axis=1)
    np.testing.assert_array_equal(chosen[decided], tokens[-STEPS:][decided])


@pytest.mark.parametrize("codec", ["q8_0", "q4_0"])
def test_rounded_as_theirs_ours_is_theirs(reference: Reference, codec: str) -> None:
    """What remains of the difference is none of the weights': codecs, permutations and fused parts are the same."""
    if reference.case.activation.startswith("gelu"):
        pytest.skip("llama.cpp looks GELU up in a table of float16, which throws values over the edge from the start")
    path = in_codec(reference, codec)
    if open_model(path).config.n_experts:
        assert np.median(one_by_one(path)) < 1e-4
        return
    expected, _ = theirs(path, PROMPT[:8])
    difference = ours(path, PROMPT[:8], [8], AsLlamaCpp()) - expected
    assert np.abs(difference).max() < 1e-4 * root_mean_square(expected)


@pytest.mark.parametrize("name", LATER)
def test_logits_of_later_families(name: str, tmp_path: Path) -> None:
    """Of 64 tokens of a prompt and 64 greedy ones."""
    changes, keys = LATER[name]
    reference = make_reference(name, tmp_path / "hf", changes)
    path = with_keys(reference, keys)
    expected, _ = theirs(path, reference.tokens)
    gelu = reference.case.activation.startswith("gelu")
    found = ours(path, reference.tokens, [CONTEXT], WithTheirGelu() if gelu else None)
    largest, scale = float(np.abs(found - expected).max()), root_mean_square(expected)
    print(f"{name}: largest difference {largest:.1e} of logits around {scale:.1f}")
    # A value at the edge between two numbers of float16 is looked up as the other one, and many layers amplify that.
    assert largest < (1e-2 if gelu else 1e-4) * scale
    plain = ours(path, reference.tokens, [CONTEXT])
    assert np.abs(plain - reference.logits).max() < (5e-3 if name == "gemma3n" else 5e-4)


def with_keys(reference: Reference, keys: dict[str, str | int]) -> Path:
    folder = reference.folder.parent
    plain = write_gguf(reference.folder, folder / "plain.gguf", reference.case)
    return recode(plain, folder / "f32.gguf", "f32", {"tokenizer.ggml.model": "none"} | keys)


def test_yarn_of_gpt_oss_that_llama_cpp_truncates(tmp_path: Path) -> None:
    """It rounds the bounds between scaled and unscaled frequencies, which config.json of gpt-oss switches off."""
    rope = CASES["gpt-oss"].arguments["rope_parameters"]
    reference = make_reference("gpt-oss", tmp_path / "hf", {"rope_parameters": rope | {"truncate": True}})
    path = with_keys(reference, {})
    expected, _ = theirs(path, reference.tokens)
    assert np.abs(expected - reference.logits).max() < CLOSE
    assert np.abs(ours(path, reference.tokens, [CONTEXT]) - expected).max() > 1


@pytest.mark.parametrize("name", ["mistral", "phi3-window"])
def test_windows_that_llama_cpp_leaves_out(name: str, tmp_path: Path) -> None:
    """It gives Mistral's architecture no window and has switched Phi-3's off; transformers has both, as we do."""
    reference = wider_reference(name, tmp_path)
    path = in_codec(reference, "f32")
    window = {"mistral": 11, "phi3-window": 13}[name]
    expected, _ = theirs(path, reference.tokens)
    found = ours(path, reference.tokens, [CONTEXT])
    assert np.abs(found - reference.logits).max() < CLOSE
    assert np.abs(found - expected)[:window].max() < CLOSE
    assert np.abs(found - expected)[window:].max() > 1


@pytest.fixture(scope="module")
def broad(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("broad")
    return make_reference("qwen2", folder / "hf", {"hidden_size": 256, "intermediate_size": 512})


# llama.cpp's names of what it makes whole files of
QUANTISED = {"q4_0": "Q4_0", "q4_1": "Q4_1", "q5_0": "Q5_0", "q5_1": "Q5_1", "q8_0": "Q8_0", "iq4_nl": "IQ4_NL",
             "q2_k": "Q2_K", "q3_k": "Q3_K_S", "q4_k": "Q4_K_S", "q5_k": "Q5_K_S", "q6_k": "Q6_K",
             "iq4_xs": "IQ4_XS"}  # fmt: skip


def quantised(reference: Reference, codec: str) -> Path:
    """The model as llama.cpp itself writes it in the codec, every matrix of it."""
    import llama_cpp

    source, path = in_codec(reference, "f32"), reference.folder.parent / f"{codec}-by-llama-cpp.gguf"
    wishes = llama_cpp.llama_model_quantize_default_params()
    wishes.nthread, wishes.pure = 1, True
    wishes.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{QUANTISED[codec]}")
    failed = llama_cpp.llama_model_quantize(str(source).encode(), str(path).encode(), ctypes.byref(wishes))
    assert failed == 0
    matrices = {name: info.codec for name, info in open_model(path).source.tensors.items() if len(info.shape) > 1}
    assert set(matrices.values()) == {codec}
    return path


@pytest.mark.parametrize("codec", QUANTISED)
def test_weights_that_llama_cpp_quantised(broad: Reference, codec: str) -> None:
    path = quantised(broad, codec)
    steps_of_256 = CODECS[codec].block_size == 256  # coarser ones: the greatest of more values sets them
    allowed = Tolerance(0.1, 0.023, 11) if steps_of_256 else Tolerance(0.073, 0.0155, 13)
    agrees(path, allowed, f"quantised {codec}")
    differences = []
    for token in PROMPT[:8]:
        expected, _ = theirs(path, np.array([token]))
        difference = ours(path, np.array([token]), [1], AsLlamaCpp()) - expected
        differences.append(np.abs(difference).max() / root_mean_square(expected))
    print(codec, *(f"{difference:.1e}" for difference in differences))
    assert np.median(differences) < 1e-4


@pytest.mark.parametrize("codec", ["bf16", "q5_0", "iq4_nl", "mxfp4", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs"])
def test_the_other_codecs_rounded_as_theirs(broad: Reference, codec: str) -> None:
    """Of eight tokens, each by itself, most are free of values thrown over the edge."""
    differences = one_by_one(in_codec(broad, codec))
    print(codec, *(f"{difference:.1e}" for difference in differences))
    assert np.median(differences) < 1e-4
