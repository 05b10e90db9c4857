"""Writes synthetic models of known shapes for measurements: GGUF as llama.cpp or PowerInfer have it, and our bundles.

    python tests/benchmarks/make_model.py dense 1b.gguf --shape 1b --codec q4_0
    python tests/benchmarks/make_model.py powerinfer 1b-sparse.gguf --shape 1b --gate sparse --active 0.1 --rank 448
    python tests/benchmarks/make_model.py powerinfer opt.gguf --shape opt-6.7b --bundle opt-bundle
    python tests/benchmarks/make_model.py powerinfer 40b.gguf --shape falcon-40b --active 0.10 --statistics
    python tests/benchmarks/make_model.py dense 30b.gguf --shape qwen3-30b-a3b --codec q4_k

dense is what llama.cpp loads (it knows no OPT); powerinfer has down neuron-major and a predictor in every layer. With
`--gate sparse` the neurons that are not active have negative gates, so that exact mode and predictors of any kind find
what is wanted; with `--gate open` nearly every gate fires, and only sparse mode with the file's own predictors means
anything. The numbers depend on the seed alone and are explained in model_contents.py. Most are taken from a pool that
repeats, and the neurons of every second layer are the same: some hundred MB of memory and little time, whatever the
size.
"""

from __future__ import annotations

import argparse
import math
import shutil
import struct
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from model_contents import BLOCK_ROWS, DISTINCT_LAYERS, EMBEDDING_SCALE, Neurons, Routing  # noqa: E402 - found above
from model_shapes import EXPERT_SHAPES, N_SPECIAL, SHAPES, Shape, Tensor, Variant, delta_sizes, tensors  # noqa: E402
from samples.raw_gguf import array, entry, gguf_file, tensor, text, value  # noqa: E402

from native_kernels.codecs import CODECS  # noqa: E402
from native_kernels.cpu.runtime.pool import usable_processors  # noqa: E402

U8 = NDArray[np.uint8]

_GGML_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "q4_k": 12, "q6_k": 14, "mxfp4": 39}  # up to q8_0 as in 2023
_FILE_TYPES = {"f16": 1, "q4_0": 2, "q8_0": 7, "q4_k": 14, "q6_k": 18, "mxfp4": 38}
_WITHOUT_ENCODER = ("q4_k", "q6_k", "mxfp4")  # only for repeating numbers of models with experts
_ALIGNMENT = 32
_POOL_WEIGHTS = 1 << 24
_AS_TOKENS = 1 << 20  # probabilities are kept as counts over so many
_DRAWN = ("first", "fc1", "fc2", "text", "next token", "router")  # contents that do not repeat within a tensor
_WHOLE = ("fc1", "router")  # drawn as one, not in blocks of rows
_CONSTANTS = {"ones": 1.0, "minus one": -1.0, "root half": 0.5**0.5, "zeros": 0.0}


@dataclass(frozen=True)
class Recipe:
    """Everything that a file's bytes depend on. Attributes as the command line's flags."""

    shape: str = "tiny"
    codec: str = "f16"
    variant: Variant = "dense"
    sparse_gate: bool = True
    active: float = 0.15
    rank: int = 1024
    seed: int = 1
    context: int | None = None  # None: the shape's own

    @property
    def sizes(self) -> Shape:
        shape = (SHAPES | EXPERT_SHAPES)[self.shape]
        return shape if self.context is None else replace(shape, context=self.context)

    @property
    def neurons(self) -> Neurons:
        sizes = self.sizes
        return Neurons(sizes.d_model, sizes.d_ff, self.rank, self.active, self.sparse_gate, self.seed)

    @property
    def routing(self) -> Routing:
        sizes = self.sizes
        return Routing(sizes.d_model, sizes.n_experts, sizes.n_experts_used, sizes.vocab_size, self.seed)

    @property
    def tensors(self) -> list[Tensor]:
        return list(tensors(self.sizes, self.codec, self.variant, self.rank))


def make_model(path: Path, recipe: Recipe) -> int:
    """Writes the file and says how many bytes it has. It has its name only when it is whole.

    All processors fill it at once, as memory: writes to one file would wait for each other.
    Raises: OSError where the disk has no room for it; ValueError where the shape cannot have the variant or the codec.
    """
    if recipe.sizes.n_experts and recipe.variant != "dense":
        raise ValueError("PowerInfer's format has no experts")
    if recipe.codec in _WITHOUT_ENCODER and not recipe.sizes.n_experts:
        raise ValueError(f"only models with experts are made in {recipe.codec}")
    writing = path.with_name(path.name + ".writing")
    head, places, n_bytes = _plan(recipe)
    if (free := shutil.disk_usage(path.parent).free) < n_bytes:
        raise OSError(f"{path} would take {n_bytes / 1e9:.2f} GB; {free / 1e9:.2f} GB are free.")
    pool = _Pool(recipe)
    with writing.open("wb") as file:
        file.truncate(n_bytes)
    memory = np.memmap(writing, np.uint8, "r+")
    memory[: len(head)] = np.frombuffer(head, np.uint8)
    first: dict[tuple[str, int, tuple[int, ...]], int] = {}  # where contents lie that others are copied from
    drawn, repeated, copied = list[Callable[[], None]](), list[Callable[[], None]](), list[Callable[[], None]]()
    for number, (each, offset) in enumerate(places):
        layer = each.layer if each.content == "router" else each.layer % DISTINCT_LAYERS
        distinct, here = (each.content, layer, each.shape), memory[offset:][: _bytes_of(each)]
        if each.content not in _DRAWN:
            repeated.append(partial(pool.fill, here, each, number))
        elif distinct in first:
            copied.append(partial(np.copyto, here, memory[first[distinct] :][: len(here)]))
        else:
            first[distinct] = offset
            drawn += pool.draws(here, each)
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(usable_processors()) as workers:
        sources = [workers.submit(task) for task in drawn]
        others = [workers.submit(task) for task in repeated]
        for one in sources:
            one.result()
        for one in (*others, *(workers.submit(task) for task in copied)):
            one.result()
    del memory, here, drawn, repeated, copied
    writing.replace(path)
    return n_bytes


def save_statistics(path: Path, recipe: Recipe) -> None:
    """Keeps how likely each neuron of the file is to fire as the model's statistics, as `engine profile` keeps what it
    counts: what is placed and how fast it can be is reckoned from them."""
    from engine.bundle.artefacts import save_stats
    from engine.model.model_files import open_model
    from engine.sparsity.stats import NeuronStats

    neurons = recipe.neurons
    layers = [neurons.probabilities(number) for number in range(DISTINCT_LAYERS)]
    likely = np.stack([layers[number % DISTINCT_LAYERS] for number in range(recipe.sizes.n_layers)])
    counts = np.round(likely * _AS_TOKENS).astype(np.int64)
    save_stats(open_model(path), NeuronStats(counts, _AS_TOKENS, "measured", f"drawn with the seed {recipe.seed}"))


def make_bundle(gguf: Path, folder: Path, codec: str) -> None:
    """The same model as a bundle. Neuron-major weights in Q4_0 or Q8_0 stay what they are, bit by bit."""
    from engine.conversion.convert import convert

    convert(gguf, folder, codec)


def _plan(recipe: Recipe) -> tuple[bytes, list[tuple[Tensor, int]], int]:
    """The header, where each tensor lies in the file, and the file's size."""
    table, places, at = [], [], 0
    for each in recipe.tensors:
        table.append(tensor(each.name, each.shape[::-1], _GGML_TYPES[each.codec], at))
        places.append((each, at))
        at += -(-_bytes_of(each) // _ALIGNMENT) * _ALIGNMENT
    magic = b"PWRI" if recipe.variant == "powerinfer" else b"GGUF"
    head = gguf_file(tuple(_metadata(recipe)), tuple(table), magic=magic, data=b"")
    return head, [(each, len(head) + offset) for each, offset in places], len(head) + at


def _bytes_of(each: Tensor) -> int:
    return each.n_elements // each.shape[-1] * CODECS[each.codec].n_bytes(each.shape[-1])


def _metadata(recipe: Recipe) -> Iterator[bytes]:
    from engine.model.families import ACTIVATION_KEY

    shape, arch = recipe.sizes, recipe.sizes.family
    yield value("general.architecture", arch)
    yield value("general.name", f"synthetic {recipe.shape} {recipe.codec}")
    yield _count("general.file_type", _FILE_TYPES[recipe.codec])
    if (arch == "llama" or not shape.n_experts) and not shape.value_heads and arch != "gemma4":
        yield value(ACTIVATION_KEY, "relu-glu" if shape.gated else "relu")
    table = shape.context + (2 if arch == "opt" else 0)  # OPT's files give the length of the table of positions
    counts = {
        "context_length": table,
        "embedding_length": shape.d_model,
        "block_count": shape.n_layers + shape.drafts,
        "feed_forward_length": shape.dense or (shape.shared if arch == "gemma4" and shape.n_experts else shape.d_ff),
        "attention.head_count": shape.n_heads,
        "attention.head_count_kv": shape.n_kv_heads,
    }
    if arch == "gemma4":
        del counts["attention.head_count_kv"]
        yield from _gemma4(shape)
    for key, count in counts.items():
        yield _count(f"{arch}.{key}", count)
    if arch == "deepseek2":
        yield from _deepseek2(shape)
    if arch in ("llama", "gemma4") or shape.n_experts or shape.value_heads:
        rotated = shape.latent[3] or shape.head_dim // (4 if shape.value_heads else 1)
        yield _count(f"{arch}.rope.dimension_count", rotated)
        yield value(f"{arch}.attention.layer_norm_rms_epsilon", 1e-5)
    else:
        yield value(f"{arch}.attention.layer_norm_epsilon", 1e-5)
    if shape.drafts:
        yield _count(f"{arch}.nextn_predict_layers", shape.drafts)
    if shape.n_experts:
        yield _count(f"{arch}.expert_feed_forward_length", shape.d_ff)
        yield _count(f"{arch}.expert_count", shape.n_experts)
        yield _count(f"{arch}.expert_used_count", shape.n_experts_used)
    if shape.shared and arch not in ("gemma4", "deepseek2"):
        yield _count(f"{arch}.expert_shared_feed_forward_length", shape.shared)
    if shape.value_heads:
        for key, size in delta_sizes(shape).items():
            yield _count(f"{arch}.{key}", size)
        quarter = shape.head_dim // 4
        sections = np.array([quarter // 2 - quarter // 4, quarter // 8, quarter // 4 - quarter // 8, 0], "<i4")
        yield entry(f"{arch}.rope.dimension_sections", 9, array(5, 4, sections.tobytes()))
    if shape.n_experts or shape.value_heads or arch == "gemma4":
        yield _count(f"{arch}.attention.key_length", shape.head_dim)
        yield _count(f"{arch}.attention.value_length", shape.latent[1] or shape.head_dim)
        yield value(f"{arch}.rope.freq_base", 1e6)
    if arch == "gpt-oss":
        yield _count("gpt-oss.attention.sliding_window", 128)
    if recipe.variant == "powerinfer":
        yield value("powerinfer.sparse_threshold", 0.0)
    yield from _vocabulary(shape.vocab_size)


def _gemma4(shape: Shape) -> Iterator[bytes]:
    n_local, size = shape.local
    numbers = np.array([n_local if is_local else shape.n_kv_heads for is_local in shape.windows], "<u4")
    yield entry("gemma4.attention.head_count_kv", 9, array(4, len(numbers), numbers.tobytes()))
    pattern = np.array(shape.windows, np.uint8)
    yield entry("gemma4.attention.sliding_window_pattern", 9, array(7, len(pattern), pattern.tobytes()))
    for key in ("attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"):
        yield _count(f"gemma4.{key}", size)
    yield _count("gemma4.attention.sliding_window", 1024)
    yield _count("gemma4.attention.shared_kv_layers", 0)
    yield _count("gemma4.embedding_length_per_layer_input", 0)
    yield value("gemma4.rope.freq_base_swa", 1e4)
    yield value("gemma4.final_logit_softcapping", 30.0)


def _deepseek2(shape: Shape) -> Iterator[bytes]:
    query_rank, rank, key_dim, rotated, value_dim = shape.latent
    sizes = {
        "attention.q_lora_rank": query_rank, "attention.kv_lora_rank": rank,
        "attention.key_length_mla": key_dim + rotated, "attention.value_length_mla": value_dim,
        "leading_dense_block_count": int(shape.dense > 0), "expert_shared_count": shape.shared // shape.d_ff,
        "expert_gating_func": 2, "vocab_size": shape.vocab_size,
    }  # fmt: skip
    for key, size in sizes.items():
        yield _count(f"deepseek2.{key}", size)
    yield value("deepseek2.expert_weights_scale", 1.8)
    yield value("deepseek2.expert_weights_norm", True)


def _vocabulary(size: int) -> Iterator[bytes]:
    """A piece for each byte, one for the space, and words that no text contains."""
    others = size - N_SPECIAL
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["\u2581", *(f"\u2581t{i}" for i in range(1, others))]
    scores = np.concatenate([np.zeros(N_SPECIAL), -np.arange(others)]).astype("<f4")
    types = np.array([2, 3, 3, *[6] * 256, *[1] * others], "<i4")
    yield value("tokenizer.ggml.model", "llama")
    yield entry("tokenizer.ggml.tokens", 9, array(8, size, b"".join(text(piece) for piece in pieces)))
    yield entry("tokenizer.ggml.scores", 9, array(6, size, scores.tobytes()))
    yield entry("tokenizer.ggml.token_type", 9, array(5, size, types.tobytes()))
    for name, token in (("unknown", 0), ("bos", 1), ("eos", 2)):
        yield _count(f"tokenizer.ggml.{name}_token_id", token)


def _count(key: str, number: int) -> bytes:
    """As u32, which llama.cpp insists on."""
    return entry(key, 4, struct.pack("<I", number))


class _Pool:
    """Encoded numbers for tensors: random ones are drawn once and repeat, from another place for every tensor."""

    def __init__(self, recipe: Recipe) -> None:
        self._seed = recipe.seed
        self._neurons, self._routing = recipe.neurons, recipe.routing
        (self._routing if recipe.sizes.n_experts else self._neurons).prepare()
        self._scale = np.float32(1 / np.sqrt(recipe.sizes.d_model))
        repeating = [each for each in recipe.tensors if each.content not in {*_DRAWN, *_CONSTANTS}]
        n_weights = min(_POOL_WEIGHTS, 2 * max(each.n_elements for each in repeating))
        rng = np.random.default_rng([self._seed, 5])
        base = rng.standard_normal(n_weights, np.float32)
        kinds = sorted({(each.content, each.codec) for each in repeating})
        self._encoded = {
            (content, codec): self._random(content, codec, base)
            if CODECS[codec].can_encode
            else _random_blocks(codec, n_weights, float(self._scale), rng)
            for content, codec in kinds
        }

    def draws(self, here: U8, each: Tensor) -> Iterator[Callable[[], None]]:
        """What fills the tensor's bytes, in parts that may run at once."""
        row_bytes, step = len(here) // each.shape[0], each.shape[0] if each.content in _WHOLE else BLOCK_ROWS
        for start in range(0, each.shape[0], step):
            stop = min(start + step, each.shape[0])
            yield partial(self._draw, here[start * row_bytes : stop * row_bytes], each, start, stop)

    def _draw(self, here: U8, each: Tensor, start: int, stop: int) -> None:
        neurons, routing = self._neurons, self._routing
        rows: dict[str, Callable[[], NDArray[np.float32]]] = {
            "first": lambda: neurons.first(each.layer, start, stop),
            "fc1": lambda: neurons.fc1(each.layer),
            "fc2": lambda: neurons.fc2(each.layer, start, stop),
            "text": lambda: routing.embedding(start, stop),
            "next token": lambda: routing.head(start, stop),
            "router": lambda: routing.router(each.layer),
        }
        here[:] = CODECS[each.codec].encode(rows[each.content]()).reshape(-1)

    def fill(self, here: U8, each: Tensor, number: int) -> None:
        """The tensor's bytes, of numbers that repeat; number: of the tensor."""
        if (constant := _CONSTANTS.get(each.content)) is not None:
            here.view(np.float32)[:] = constant
            return
        pool, unit = self._encoded[each.content, each.codec], CODECS[each.codec].type_size
        at = int(np.random.default_rng([self._seed, 4, number]).integers(len(pool) // unit)) * unit
        done = 0
        while done < len(here):
            piece = pool[at : at + len(here) - done]
            here[done : done + len(piece)] = piece
            done, at = done + len(piece), 0

    def _random(self, content: str, codec: str, base: NDArray[np.float32]) -> U8:
        makers: dict[str, Callable[[], NDArray[np.float32]]] = {
            "weights": lambda: base * self._scale,
            "embedding": lambda: (base + 1) * np.float32(EMBEDDING_SCALE),
            "positions": lambda: base,
        }
        return CODECS[codec].encode(makers[content]()).reshape(-1)


def _random_blocks(codec: str, n_weights: int, scale: float, rng: np.random.Generator) -> U8:
    """Return blocks of a codec that has no encoder: random numbers of about this standard deviation."""
    kind = CODECS[codec]
    blocks = rng.integers(0, 256, (n_weights // kind.block_size, kind.type_size), np.uint8)
    if codec == "mxfp4":
        blocks[:, 0] = 127 + round(math.log2(scale / 2.93))  # 2.93: standard deviation of the 16 numbers
    elif codec == "q6_k":
        blocks[:, 192:208] = 32  # all scales
        blocks[:, 208:] = np.array([scale / (32 * 18.47)], "<f2").view(np.uint8)  # standard deviation of -32 to 31
    else:
        d = np.float16(scale / (32 * 4.61))  # 4.61: standard deviation of 0 to 15
        blocks[:, :4] = np.array([d, 7.5 * d], "<f2").view(np.uint8)
        blocks[:, 4:16] = [0xA0] * 8 + [0] * 4  # all scales and minima are 32
    return blocks.reshape(-1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variant", choices=("dense", "powerinfer"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--shape", choices=SHAPES | EXPERT_SHAPES, default="tiny")
    parser.add_argument("--codec", choices=sorted(_FILE_TYPES), default="f16")
    parser.add_argument("--gate", choices=("sparse", "open"), default="sparse")
    parser.add_argument("--active", type=float, default=0.15, help="share of the neurons active, on average")
    parser.add_argument("--rank", type=int, default=1024, help="of the predictors")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--context", type=int, help="tokens (default: the shape's own)")
    parser.add_argument("--statistics", action="store_true", help="also keep how likely each neuron is to fire")
    parser.add_argument("--bundle", type=Path, help="also write it as a bundle to this folder")
    flags = parser.parse_args()
    if flags.variant == "powerinfer" and flags.shape in EXPERT_SHAPES:
        parser.error("PowerInfer's format has no experts")
    if flags.codec in _WITHOUT_ENCODER and flags.shape not in EXPERT_SHAPES:
        parser.error(f"only models with experts are made in {flags.codec}")
    sparse = flags.gate == "sparse"
    recipe = Recipe(
        flags.shape, flags.codec, flags.variant, sparse, flags.active, flags.rank, flags.seed, flags.context
    )
    began = time.perf_counter()
    n_bytes = make_model(flags.path, recipe)
    words = f"{n_bytes / 1e9:.2f} GB in {time.perf_counter() - began:.1f} s"
    print(f"{flags.path}: {flags.shape} {flags.codec} {flags.variant}, {words}")
    if flags.variant == "powerinfer":
        sizes = recipe.sizes
        predictors = sizes.n_layers * flags.rank * (sizes.d_model + sizes.d_ff)
        print(f"The predictors take {predictors / sizes.ffn_parameters:.1%} of the feed-forward blocks' bytes.")
    if flags.statistics:
        save_statistics(flags.path, recipe)
    if flags.bundle:
        make_bundle(flags.path, flags.bundle, flags.codec)
        print(f"{flags.bundle}: the same as a bundle")
    return 0


if __name__ == "__main__":
    sys.exit(main())
