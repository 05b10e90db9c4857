"""GGUF files that llama.cpp's own converter writes: the models of the folders that it converts, logit by logit.

HEARTH_LLAMA_CPP names the folder of llama.cpp's source, which is vendor/llama.cpp in llama-cpp-python's source package.
Where llama-cpp-python is installed, it reads the same files.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draft_models import ONE_LAYER, DraftReference, with_drafts
from family_models import CASES, CONTEXT, VOCAB, Reference, make_reference
from test_draft_layers import drafter, loaded, logits_of
from test_llama_cpp import LATER, WithTheirGelu, ours, root_mean_square, theirs

from native_kernels.reference import ReferenceOperators

SOURCE = os.environ.get("HEARTH_LLAMA_CPP", "")
pytestmark = pytest.mark.skipif(not SOURCE, reason="HEARTH_LLAMA_CPP names no source of llama.cpp")
CLOSE = 5e-4

# Without a vocabulary, as only ids go in. transformers adds keys that decide the architecture of two kinds wrongly.
CONVERTER = """
import json, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
import gguf, torch
from conversion import ModelBase, ModelType, get_model_architecture, get_model_class

def no_vocabulary(model):
    model.gguf_writer.add_tokenizer_model("none")
    if not any(key.endswith(".vocab_size") for part in model.gguf_writer.kv_data for key in part):
        model.gguf_writer.add_vocab_size(model.hparams["vocab_size"])

with torch.inference_mode():
    for folder in map(Path, sys.argv[3:]):
        own = json.loads((folder / "config.json").read_text())
        found = ModelBase.load_hparams(folder, False)
        kind = get_model_class(get_model_architecture(found, ModelType.TEXT), mmproj=False)
        for one in (kind, *(inner for inner in vars(kind).values() if isinstance(inner, type))):
            one.set_vocab = no_vocabulary
        kind.no_mtp = kind.supports_mtp_export and "drafts" not in folder.parts
        more = {"hparams": own} if own["model_type"] in ("falcon", "nemotron_h") else {}
        fused = sys.argv[2] == "fused"
        both = fused and gguf.MODEL_TENSOR.FFN_GATE_UP_EXP in gguf.MODEL_TENSORS[kind.model_arch]
        kind(folder, gguf.LlamaFileType.ALL_F32, folder / "converted.gguf", fuse_qkv=fused, fuse_gate_up_exps=both,
             **more).write()
"""
NO_FILE = {  # unknown to the converter, or it leaves out activations, windows, biases, positions or scales
    "opt", "opt-350m", "opt-gelu-galactica", "falcon-rows", "bamboo", "prosparse", "relu-falcon", "relu-llama",
    "turbosparse-mistral", "turbosparse-mixtral", "mixtral-window", "llama4", "mistral", "qwen2-window",
    "smallthinker-window", "phi3-window", "llama-biases", "ernie4.5-biases", "seed-oss-biases", "gpt-oss-clamped",
    "qwen2-moe-normed", "qwen3-moe-weighed-by-all", "smollm3-stated", "llama-dynamic", "qwen3-yarn", "gemma2-scalar",
}  # fmt: skip
_SIGMOID, _MTP, _HEADS = {"scoring_func": "sigmoid"}, {"mtp_num_hidden_layers": 1}, {"mamba_head_dim": 16}
_SMALLTHINKER = {"architectures": ["SmallThinkerForCausalLM"], **dict.fromkeys(
    ["num_local_experts", "num_experts_per_tok", "intermediate_size"])}  # fmt: skip
PUBLISHED: dict[str, dict[str, Any]] = {  # what published config.json files say beside; None: what they lack
    "cohere2": {"rotary_pct": 1.0}, "deepseek-v3": _SIGMOID, "falcon-7b": {"num_kv_heads": None},
    "glm4-moe-lite": _SIGMOID, "granite-hybrid": {
        "layer_types": ["mamba", "attention", "mamba"], "num_experts_per_tok": 0, "intermediate_size": 40},
    "granite-hybrid-moe": {"layer_types": ["mamba", "mamba", "attention"]},
    "hunyuan-moe": {"moe_intermediate_size": [64] * 3, "moe_topk": [3] * 3, "num_shared_expert": [1] * 3},
    "minimax-m2": {"rotary_dim": 8} | _SIGMOID, "mistral4": {"architectures": ["Mistral3ForConditionalGeneration"]},
    "nemotron-h": {"hybrid_override_pattern": "M-M*-", **dict.fromkeys(
        ["num_experts_per_tok", "n_routed_experts", "n_group", "topk_group"])},
    "phimoe": {"architectures": ["PhiMoEForCausalLM"]},
    "smallthinker-21b": _SMALLTHINKER, "smallthinker-4b": _SMALLTHINKER,
    "qwen3.5": _MTP, "qwen3.5-moe": _MTP,
}  # fmt: skip
ROPE = CASES["mistral4"].arguments["rope_parameters"] | {"llama_4_scaling_beta": 0.0}
CHANGES: dict[str, dict[str, Any]] = {  # of sizes that the converter takes for granted, and of what files do not say
    "gemma3n": {"vocab_size_per_layer_input": VOCAB}, "gemma3-scaled": {"query_pre_attn_scalar": 16},
    "hunyuan": {"hidden_size": 512, "head_dim": 128, "max_position_embeddings": 1 << 15, "rope_parameters": {
        "rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 1000.0, "factor": 1.0}},
    "mistral4": {"rope_parameters": ROPE}, "nemotron-h": _HEADS, "nemotron-h-moe": _HEADS,
}  # fmt: skip
NAMES = [name for name in CASES if name not in NO_FILE]
References = Callable[[str], Reference]


def published(folder: Path, to: Path, name: str) -> Path:
    """The folder with what published ones have and transformers does not write."""
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text()) | PUBLISHED.get(name, {})
    gone = {key for key, value in PUBLISHED.get(name, {}).items() if value is None}
    (to / "config.json").write_text(json.dumps({key: value for key, value in config.items() if key not in gone}))
    tokens = {"model": {"vocab": {str(n): n for n in range(VOCAB)}}, "added_tokens": []}  # their number is all it reads
    (to / "tokenizer.json").write_text(json.dumps(tokens))
    return to


def convert(folders: list[Path], fused: bool = False) -> None:
    """Write converted.gguf into each folder. One process, as it imports torch and transformers."""
    command = [sys.executable, "-c", CONVERTER, SOURCE, "fused" if fused else "apart", *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def converted(references: References, tmp_path_factory: pytest.TempPathFactory) -> References:
    """The folders of all cases, with the file beside the weights."""
    made, at = {}, tmp_path_factory.mktemp("converted")
    for name in NAMES:
        changes = LATER.get(name, ({},))[0] | CHANGES.get(name, {})
        found = make_reference(name, at / "made" / name, changes) if changes else references(name)
        folder = published(found.folder, at / "folders" / name, name)
        made[name] = Reference(folder, found.case, found.tokens, found.logits, found.steps)
    convert([one.folder for one in made.values()])
    return made.__getitem__


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_the_folder(name: str, converted: References) -> None:
    reference = converted(name)
    path = reference.folder / "converted.gguf"
    found = ours(path, reference.tokens, [CONTEXT])
    of_folder = ours(reference.folder, reference.tokens, [CONTEXT])
    assert np.abs(found - of_folder).max() < (CLOSE if name != "gemma3n" else 1e-2)  # of 25 layers
    largest = np.abs(found - reference.logits).max()
    print(f"{name}: {largest:.1e} to transformers")
    assert largest < (CLOSE if name != "gemma3n" else 1e-2)  # of 25 layers


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed")
# Without one with another epsilon, and one that lacks keys and values that no layer uses.
@pytest.mark.parametrize("name", [name for name in LATER if name not in ("glm4-moe-lite", "gemma3n")])
def test_llama_cpp_reads_the_same_from_its_files(name: str, converted: References) -> None:
    reference = converted(name)
    path = reference.folder / "converted.gguf"
    expected, _ = theirs(path, reference.tokens)
    gelu = reference.case.activation.startswith("gelu")
    largest = np.abs(ours(path, reference.tokens, [CONTEXT], WithTheirGelu() if gelu else None) - expected).max()
    print(f"{name}: {largest:.1e} to llama.cpp")
    assert largest < (1e-2 if gelu else 2e-4) * root_mean_square(expected)


def test_fused_tensors(converted: References, tmp_path: Path) -> None:
    names = ["llama", "qwen3-moe", "glm4-moe", "gpt-oss", "qwen3.5-moe", "qwen3-next", "gemma4-moe", "mistral4"]
    folders = [published(converted(name).folder, tmp_path / name, name) for name in names]
    convert(folders, fused=True)
    for name, folder in zip(names, folders, strict=True):
        found = ours(folder / "converted.gguf", converted(name).tokens, [CONTEXT])
        assert np.abs(found - converted(name).logits).max() < CLOSE, name


def test_layers_that_draft_tokens(references: References, tmp_path: Path) -> None:
    names = [name for name in ONE_LAYER if name != "deepseek-v3"]  # whose layer the converter leaves out
    made: dict[str, DraftReference] = {}
    for name in names:
        changes = CHANGES.get(name)
        reference = make_reference(name, tmp_path / name, changes) if changes else references(name)
        drafts = with_drafts(name, reference, tmp_path / "drafts" / name)
        folder = published(drafts.folder, tmp_path / "drafts" / name / "published", name)
        config = json.loads((folder / "config.json").read_text())
        if not name.startswith("qwen"):
            (folder / "config.json").write_text(json.dumps(config | {"num_nextn_predict_layers": 1}))
        made[name] = DraftReference(folder, drafts.tokens, drafts.hidden, drafts.logits)
    convert([one.folder for one in made.values()])
    for name, wanted in made.items():
        layer = loaded(wanted.folder / "converted.gguf")
        found = logits_of(drafter(layer, ReferenceOperators()), wanted, 30)
        assert np.abs(found - wanted.logits[30:]).max() < CLOSE, name
