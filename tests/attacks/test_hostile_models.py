"""Model files that are damaged or lie: each ends in one clear error, quickly and without eating memory."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples.raw_gguf import array, entry, gguf_file, tensor, text, tiny_model_parts, write_gguf
from samples.tiny_model import make_tiny_gguf, make_tiny_model

from engine.errors import EngineError, ModelFormatError, ModelNotFoundError, UnsupportedModelError
from engine.formats.gguf_header import Budget, HeaderTooLargeError
from engine.model.weights import load_weights, open_model

MOST_MEMORY_BYTES = 32 << 20


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """What a hostile file makes us allocate stays small, whatever it claims."""
    import safetensors.numpy  # noqa: F401 - imported before measuring

    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_MEMORY_BYTES


def refused(path: Path, kind: type[EngineError] | tuple[type[EngineError], ...], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        load_weights(open_model(path))
    message = caught.value.message
    assert message.endswith(".")
    assert len(message) < 400
    assert caught.value.hint


# --- Hugging Face directories


def test_nothing_there(tmp_path: Path) -> None:
    refused(tmp_path / "gone", ModelNotFoundError, "There is no model at")
    refused(tmp_path, ModelNotFoundError, "neither model.safetensors nor a GGUF file")


def test_weights_missing(tmp_path: Path) -> None:
    (make_tiny_model(tmp_path / "m") / "model.safetensors").unlink()
    refused(tmp_path / "m", ModelNotFoundError, "weights are missing")


def test_config_missing(tmp_path: Path) -> None:
    (make_tiny_model(tmp_path / "m") / "config.json").unlink()
    refused(tmp_path / "m", ModelFormatError, "no config.json")


def test_weights_split_over_files(tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path / "m")
    (path / "model.safetensors").rename(path / "model-00001-of-00002.safetensors")
    (path / "model.safetensors.index.json").write_text("{}")
    refused(path, ModelFormatError, r"model\.safetensors\.index\.json lacks a 'weight_map'")


PICKLE = b"PK\x03\x04\x00\x00\x08\x08archive/data.pkl"


@pytest.mark.parametrize("name", ["model.bin", "model.ckpt", "weights.pt", "model.gguf"])
@pytest.mark.parametrize("start", [PICKLE, b"\x80\x02\x8a\x0al\xfc"])
def test_pickles_are_refused_with_the_reason(tmp_path: Path, name: str, start: bytes) -> None:
    folder = make_tiny_model(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(start * 10)
    for path in (folder, folder / name):
        with pytest.raises(UnsupportedModelError, match="is a pickle, which can run any program"):
            open_model(path)


@pytest.mark.parametrize("start", [PICKLE, b"\x80\x02\x8a\x0al\xfc"])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00001.bin"])
def test_damaged_weights_in_pytorchs_files_are_refused(tmp_path: Path, name: str, start: bytes) -> None:
    folder = make_tiny_model(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(start * 10)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"model.norm.weight": name}}))
    refused(folder, ModelFormatError, f"{name} is not a sound PyTorch file")


def test_a_pickle_beside_sound_weights_is_let_lie(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "m")
    (folder / "pytorch_model.bin").write_bytes(PICKLE)
    assert open_model(folder).format == "safetensors"


def test_a_folder_that_may_not_be_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "m").mkdir()
    monkeypatch.setattr(Path, "iterdir", forbidden)
    with pytest.raises(ModelNotFoundError, match=r"m cannot be read: Permission denied\."):
        open_model(tmp_path / "m")


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 9, 100, 2000, -1000, -1])
def test_truncated_safetensors(tmp_path: Path, kept: int) -> None:
    file = make_tiny_model(tmp_path / "m") / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    refused(tmp_path / "m", ModelFormatError, r"model\.safetensors")


@pytest.mark.parametrize(
    "data",
    [
        b"garbage that is no header at all",
        b"\xff" * 64,
        struct.pack("<Q", 1 << 60) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 8) + b'{"a":1} ',
        struct.pack("<Q", 20) + b'{"a":{"dtype":"F32"}',
        b"<html>404 Not Found</html>",
    ],
)
def test_garbage_safetensors(tmp_path: Path, data: bytes) -> None:
    (make_tiny_model(tmp_path / "m") / "model.safetensors").write_bytes(data)
    refused(tmp_path / "m", ModelFormatError, r"not a sound safetensors file")


def test_safetensors_with_a_tensor_outside_the_file(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    file = make_tiny_model(tmp_path / "m") / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    refused(tmp_path / "m", ModelFormatError, r"not a sound safetensors file")


@pytest.mark.parametrize(
    ("config", "kind", "words"),
    [
        ({"hidden_size": 64}, ModelFormatError, r"embed_tokens.weight has the shape \[270, 32\].*\[270, 64\]"),
        ({"intermediate_size": 1 << 20}, ModelFormatError, r"gate_proj.weight has the shape \[64, 32\].*1048576, 32"),
        ({"vocab_size": 271}, ModelFormatError, r"\[270, 32\].*\[271, 32\]"),
        ({"num_hidden_layers": 3}, ModelFormatError, r"lack model\.layers\.2\.input_layernorm.* and 6 more"),
        ({"num_hidden_layers": 1}, UnsupportedModelError, r"ignore: model\.layers\.1"),
        ({"num_hidden_layers": 10**9}, ModelFormatError, "n_layers is 1000000000"),
        ({"num_hidden_layers": 0}, ModelFormatError, "n_layers is 0"),
        ({"hidden_size": -32}, ModelFormatError, "d_model is -32"),
        ({"hidden_size": "32"}, ModelFormatError, "hidden_size in config.json is '32'; expected is a whole number"),
        ({"hidden_size": 32.5}, ModelFormatError, "hidden_size"),
        ({"hidden_size": True}, ModelFormatError, "hidden_size"),
        ({"hidden_size": None}, ModelFormatError, "lacks 'hidden_size'"),
        ({"num_attention_heads": 0, "head_dim": None}, ModelFormatError, "0 attention heads"),
        ({"num_attention_heads": 3, "head_dim": None}, ModelFormatError, "cannot be shared by 3"),
        ({"num_key_value_heads": 3}, ModelFormatError, "cannot share"),
        ({"head_dim": 7}, ModelFormatError, "odd"),
        ({"rms_norm_eps": 10**400}, ModelFormatError, "rms_norm_eps"),
        ({"rms_norm_eps": float("nan")}, ModelFormatError, "norm_eps"),
        ({"rope_theta": -1}, ModelFormatError, "rope_theta"),
        ({"eos_token_id": [1, "x"]}, ModelFormatError, "eos_token_id"),
        ({"eos_token_id": 99999}, ModelFormatError, "99999 is outside"),
        ({"model_type": "mamba"}, UnsupportedModelError, "'mamba' yet"),
        ({"model_type": None}, ModelFormatError, "lacks 'model_type'"),
        ({"hidden_act": "mish"}, UnsupportedModelError, "'mish' is not supported; Hearth runs relu, drelu, silu"),
        ({"hidden_act": "fatrelu"}, ModelFormatError, "lacks 'hidden_act_param'"),
        ({"hidden_act": "fatrelu", "hidden_act_param": -1}, ModelFormatError, "threshold -1.0 is invalid"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, ModelFormatError, "lacks 'low_freq_factor'"),
        ({"rope_scaling": {"type": "linear", "factor": 0.0}}, ModelFormatError, "invalid"),
        ({"rope_scaling": {"type": "linear"}}, ModelFormatError, "lacks 'factor'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 0.0}}, ModelFormatError, "invalid"),
        ({"rope_scaling": {"type": "longrope"}}, ModelFormatError, "lacks 'short_factor'"),
        ({"rope_scaling": {"type": "xpos"}}, UnsupportedModelError, "rope_scaling: xpos"),
        ({"rope_scaling": {"factor": 2.0}}, UnsupportedModelError, "rope_scaling: factor"),
        ({"rope_parameters": {"rope_type": "yarn"}}, ModelFormatError, "lacks 'factor'"),
        ({"rope_scaling": 3}, ModelFormatError, "rope_scaling"),
        ({"attention_bias": True}, ModelFormatError, r"lack model\.layers\.0\.self_attn\.q_proj\.bias"),
        ({"mlp_bias": True}, ModelFormatError, r"lack model\.layers\.0\.mlp\.gate_proj\.bias"),
        ({"partial_rotary_factor": 0.5}, UnsupportedModelError, r"partial_rotary_factor is 0\.5"),
        ({"sliding_window": 16}, UnsupportedModelError, "sliding_window is 16"),
        ({"layer_types": ["full_attention", "linear_attention"]}, UnsupportedModelError, "layer_types"),
        ({"num_local_experts": 8}, UnsupportedModelError, r"has experts \(num_local_experts: 8\)"),
        ({"model_type": "mixtral"}, ModelFormatError, "lacks 'num_local_experts'"),
        ({"model_type": "olmoe"}, UnsupportedModelError, "'olmoe' models have experts"),
        ({"model_type": "qwen2_vl"}, UnsupportedModelError, "'qwen2_vl' models read pictures too"),
        ({"model_type": "opt"}, ModelFormatError, "lacks 'activation_function'"),
        ({"model_type": "falcon", "alibi": True, "activation": "relu"}, UnsupportedModelError, "ALiBi"),
        ({"model_type": "phi3", "rope_scaling": {"type": "su"}}, ModelFormatError, "lacks 'short_factor'"),
        ({"model_type": "gemma2", "query_pre_attn_scalar": 0}, ModelFormatError, "query_pre_attn_scalar"),
        ({"quantization_config": {"bits": 4}}, UnsupportedModelError, "quantization_config"),
        ({"tie_word_embeddings": False}, ModelFormatError, r"lack lm_head\.weight"),
    ],
)  # fmt: skip
def test_configs_that_lie_or_ask_for_too_much(
    tmp_path: Path, config: dict[str, Any], kind: type[EngineError], words: str
) -> None:
    refused(make_tiny_model(tmp_path / "m", config=config), kind, words)


def test_the_newer_spelling_of_plain_positions_is_read(tmp_path: Path) -> None:
    config = {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    assert open_model(make_tiny_model(tmp_path / "m", config=config)).config.rope_theta == 5e5


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000],
    ids=["empty", "cut", "list", "text", "bytes", "deep"],
)
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_broken_json(tmp_path: Path, name: str, data: bytes) -> None:
    (make_tiny_model(tmp_path / "m") / name).write_bytes(data)
    refused(tmp_path / "m", ModelFormatError, name.replace(".", r"\."))


def test_senseless_sampling_defaults(tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path / "m")
    (path / "generation_config.json").write_text('{"temperature": -3}')
    refused(path, ModelFormatError, "temperature is -3")


def test_tensors_that_we_would_have_to_ignore(tmp_path: Path) -> None:
    bias = {"model.layers.0.self_attn.q_proj.bias": np.zeros(32, np.float32)}
    refused(make_tiny_model(tmp_path / "m", tensors=bias), UnsupportedModelError, r"q_proj\.bias")


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path / "m", tensors={"model.layers.1.mlp.up_proj.weight": None})
    refused(path, ModelFormatError, r"lack model\.layers\.1\.mlp\.up_proj\.weight\.")


def test_weights_in_a_type_that_is_no_weight_format(tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path / "m", tensors={"model.norm.weight": np.ones(32, np.int8)})
    refused(path, UnsupportedModelError, r"model\.norm\.weight is stored as I8; Hearth reads F32")


# --- GGUF


ARCHITECTURE = entry("general.architecture", 8, text("llama"))
HUGE = (1 << 64) - 1

HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "wrong magic": (gguf_file(magic=b"GGML"), "begins with b'GGML'"),
    "huge tensor count": (gguf_file(n_tensors=HUGE), "claims 18446744073709551615 tensors"),
    "huge entry count": (gguf_file(n_entries=HUGE), "claims 18446744073709551615 metadata"),
    "more entries than bytes": (gguf_file(n_entries=60_000), "past the file|unknown value type|appears twice"),
    "more tensors than bytes": (gguf_file(n_tensors=60_000), "past the file|dimensions"),
    "huge key": (gguf_file((struct.pack("<Q", HUGE),)), "claims 18446744073709551615 bytes"),
    "key past the end": (gguf_file((struct.pack("<Q", 5000),)), "past the file"),
    "key not UTF-8": (gguf_file((struct.pack("<Q", 2) + b"\xff\xfe" + bytes(5),)), "is not UTF-8"),
    "huge text": (gguf_file((text("a") + struct.pack("<IQ", 8, 1 << 62),)), "at most 16777216"),
    "unknown value type": (gguf_file((entry("a", 99, b""),)), "unknown value type 99"),
    "truth value 7": (gguf_file((entry("a", 7, b"\x07"),)), "truth value of a is 7"),
    "duplicate key": (gguf_file((entry("a", 0, b"\x01"),) * 2), "key a appears twice"),
    "huge array": (gguf_file((entry("a", 9, array(4, 1 << 61)),)), "claims 2305843009213693952 elements"),
    "array past the end": (gguf_file((entry("a", 9, array(4, 4_000_000)),)), "past the file"),
    "texts past the end": (gguf_file((entry("a", 9, array(8, 4_000_000)),)), "more than the file could hold"),
    "many arrays": (gguf_file(tuple(entry(f"a{i}", 9, array(0, 3_000_000, b"")) for i in range(2))), "past the file"),
    "nested array": (gguf_file((entry("a", 9, array(9, 1, array(9, 1, array(0, 1, b"x")))),)), "array of arrays"),
    "unknown element type": (gguf_file((entry("a", 9, array(77, 1, b"x")),)), "unknown element type 77"),
    "alignment 0": (gguf_file((entry("general.alignment", 4, bytes(4)),)), "general.alignment is 0"),
    "alignment 48": (gguf_file((entry("general.alignment", 4, struct.pack("<I", 48)),)), "general.alignment is 48"),
    "alignment huge": (gguf_file((entry("general.alignment", 4, b"\0\0\0\x80"),)), "general.alignment is 2147483648"),
    "alignment text": (gguf_file((entry("general.alignment", 8, text("32")),)), "general.alignment is '32'"),
    "no dimensions": (gguf_file((), (tensor(dims=()),)), "0 dimensions"),
    "many dimensions": (gguf_file((), (text("t") + struct.pack("<I", 4_000_000_000),)), "4000000000 dimensions"),
    "dimension zero": (gguf_file((), (tensor(dims=(32, 0)),)), r"dimensions \[32, 0\]"),
    "dimension huge": (gguf_file((), (tensor(dims=(HUGE,)),)), "claims the dimensions"),
    "size overflows": (gguf_file((), (tensor(dims=(1 << 40, 1 << 40)),)), "bytes past the file"),
    "unknown tensor type": (gguf_file((), (tensor(kind=4),)), "unknown type 4"),
    "tensor outside": (gguf_file((), (tensor(offset=1 << 40),)), "bytes past the file"),
    "tensor half outside": (gguf_file((), (tensor(dims=(65,)),)), "ends 4 bytes past the file"),
    "offset wraps round": (gguf_file((), (tensor(offset=HUGE - 31),)), "bytes past the file"),
    "offset not aligned": (gguf_file((), (tensor(offset=4),)), "not a multiple of 32"),
    "half a block": (gguf_file((), (tensor(dims=(31,), kind=8),)), "hold 31 values, no multiple of 32"),
    "duplicate tensor": (gguf_file((), (tensor(), tensor(offset=128))), "tensor t appears twice"),
    "overlap": (gguf_file((), (tensor("a"), tensor("b", offset=64))), "a and b overlap"),
    "no metadata": (gguf_file(), "lacks 'general.architecture'"),
    "architecture only": (gguf_file((ARCHITECTURE,)), "lacks 'llama.attention.head_count'"),
    "architecture a number": (gguf_file((entry("general.architecture", 4, bytes(4)),)), "expected is a text"),
}  # fmt: skip

UNSUPPORTED: dict[str, tuple[bytes, str]] = {
    "version 1": (gguf_file(version=1), "version 1; versions 2 and 3"),
    "version 4": (gguf_file(version=4), "version 4; versions 2 and 3"),
    "big endian": (gguf_file(version=3 << 24), "version 3, big endian"),
    "withdrawn codec": (gguf_file((), (tensor(dims=(256,), kind=31),)), "stored as Q4_0_4_4, which GGUF dropped"),
    "other family": (gguf_file((entry("general.architecture", 8, text("mamba")),)), "'mamba' yet"),
    "experts": (gguf_file((entry("general.architecture", 8, text("olmoe")),)), "'olmoe' models have experts"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_gguf(tmp_path: Path, name: str) -> None:
    data, words = HOSTILE[name]
    (tmp_path / "m.gguf").write_bytes(data)
    refused(tmp_path / "m.gguf", ModelFormatError, words)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_gguf(tmp_path: Path, name: str) -> None:
    data, words = UNSUPPORTED[name]
    (tmp_path / "m.gguf").write_bytes(data)
    refused(tmp_path / "m.gguf", UnsupportedModelError, words)


def test_many_lists_are_no_way_around_the_cap_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.formats.gguf_header._MAX_ARRAY_ELEMENTS", 10)
    lists = tuple(entry(key, 9, array(0, 6, bytes(6))) for key in "ab")
    (tmp_path / "m.gguf").write_bytes(gguf_file(lists))
    refused(tmp_path / "m.gguf", ModelFormatError, "the array b claims 6 elements; at most 10 are accepted")


@pytest.fixture(scope="module")
def sound_gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return make_tiny_gguf(tmp_path_factory.mktemp("gguf") / "sound.gguf", n_layers=1).read_bytes()


def test_a_gguf_file_cut_off_anywhere(tmp_path: Path, sound_gguf: bytes) -> None:
    file = tmp_path / "m.gguf"
    for kept in [*range(400), *range(400, len(sound_gguf), 499), len(sound_gguf) - 1]:
        file.write_bytes(sound_gguf[:kept])
        with pytest.raises(ModelFormatError):
            open_model(file)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 12_000), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_gguf_file_with_flipped_bytes_opens_or_is_refused(
    tmp_path: Path, sound_gguf: bytes, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(sound_gguf)
    for at, value in changes:
        data[at % len(data)] = value
    (tmp_path / "m.gguf").write_bytes(data)
    try:
        load_weights(open_model(tmp_path / "m.gguf"))
    except EngineError as error:
        assert error.message  # noqa: PT017 - either outcome is right; what is wrong is any other exception


def test_a_block_scale_that_is_no_number(tmp_path: Path, sound_gguf: bytes) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(sound_gguf)
    at = open_model(file).source.tensors["blk.0.ffn_up.weight"].offset
    file.write_bytes(sound_gguf[:at] + b"\x00\x7c" + bytes(32) + sound_gguf[at + 34 :])  # infinity times zero
    refused(file, ModelFormatError, r"blk\.0\.ffn_up\.weight holds values that are not numbers")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("llama.rope.scaling.type", "longrope", "longrope"),
        ("llama.rope.scaling.factor", 4.0, r"scaling\.factor: 4\.0"),
        ("llama.rope.dimension_count", 4, "dimension_count is 4"),
        ("llama.attention.value_length", 4, "value_length is 4"),
        ("llama.expert_weights_scale", 2.0, r"names llama\.expert_weights_scale"),
        ("hearth.activation", "mish-glu", "'mish-glu' is unknown"),
        ("hearth.activation", "relu", "'relu' is unknown"),  # LLaMA has a gate
        ("llama.rope.scaling.attn_factor", 1.5, "attn_factor: 1.5"),
        ("llama.residual_scale", 2.0, r"names llama\.residual_scale, which Hearth does not know"),
    ],
)
def test_gguf_metadata_that_would_change_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: str | float, words: str
) -> None:
    import gguf

    kinds = {str: gguf.GGUFValueType.STRING, float: gguf.GGUFValueType.FLOAT32, int: gguf.GGUFValueType.UINT32}

    def change(writer: Any) -> None:
        writer.kv_data[0].pop(key, None)
        writer.add_key_value(key, value, kinds[type(value)])

    refused(changed_gguf(tmp_path / "m.gguf", monkeypatch, change), UnsupportedModelError, words)


@pytest.mark.parametrize("name", ["rope_factors_long.weight", "blk.0.attn_q.bias"])
def test_gguf_tensors_that_would_change_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def change(writer: Any) -> None:
        writer.add_tensor(name, np.ones(32, np.float32))

    refused(changed_gguf(tmp_path / "m.gguf", monkeypatch, change), UnsupportedModelError, name.replace(".", r"\."))


@pytest.mark.parametrize("value", [0.0, -2.0])
def test_divisors_of_frequencies_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    def change(writer: Any) -> None:
        writer.add_tensor("rope_freqs.weight", np.array([1, 2, value, 3], np.float32))

    path = changed_gguf(tmp_path / "m.gguf", monkeypatch, change)
    refused(path, ModelFormatError, r"rope_freqs\.weight holds divisors that are not positive")


@pytest.mark.expects_log("its name speaks of ReLU")
def test_a_file_whose_name_contradicts_its_activation_is_run_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(writer: Any) -> None:
        writer.kv_data[0].pop("hearth.activation")
        writer.kv_data[0]["general.name"].value = "Prosparse 7B"

    path = changed_gguf(tmp_path / "m.gguf", monkeypatch, change)
    assert open_model(path).config.activation == "silu-glu"


def changed_gguf(path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], None]) -> Path:
    """A sound file but for what `change` did to the writer."""
    import gguf

    plain = gguf.GGUFWriter.write_header_to_file

    def write(writer: Any, *arguments: Any) -> None:
        change(writer)
        plain(writer, *arguments)

    monkeypatch.setattr(gguf.GGUFWriter, "write_header_to_file", write)
    return make_tiny_gguf(path)


def test_an_unknown_architecture_is_told_before_its_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vocabulary is sound, and so would be a larger one: what keeps both from running is the architecture."""
    said, tensors = tiny_model_parts(tmp_path)
    said["general.architecture"] = "mamba"
    path = write_gguf(tmp_path / "m.gguf", said, tensors)
    refused(path, UnsupportedModelError, "mamba")
    monkeypatch.setattr(Budget.__init__, "__defaults__", (2000,))
    refused(path, UnsupportedModelError, "mamba")
    said["general.architecture"] = "llama"
    refused(write_gguf(tmp_path / "n.gguf", said, tensors), HeaderTooLargeError, "memory")


def test_a_name_that_would_steer_a_terminal(tmp_path: Path) -> None:
    said, tensors = tiny_model_parts(tmp_path)
    said |= {"general.name": "Good\x1b[2J\r\n\u202emodel " + "x" * 5000, "general.description": "\x07\n"}
    model = open_model(write_gguf(tmp_path / "m.gguf", said, tensors))
    assert model.name.startswith("Good [2J model xxx")
    assert (model.name.isprintable(), len(model.name), model.description) == (True, 500, "")


def test_no_failure_carries_what_a_terminal_obeys() -> None:
    name = "a\x1b]0;owned\x07\x9b2J\r\u202eb\u2066c\ud800\nd"
    error = ModelFormatError(f"The tensor {name} is damaged.")
    assert error.message == str(error)
    assert not set(error.message) & set("\x1b\x07\x9b\r\u202e\u2066\ud800")
    assert "\\x1b]0;owned" in error.message
    assert "ä火\u202f🔥" in ModelFormatError("ä火\u202f🔥").message
