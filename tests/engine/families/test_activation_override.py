"""Activations that files cannot say, said by a person: which model then runs, and where inspect says it came from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from family_models import CONTEXT, SHAPE, Reference, make_reference
from gguf_models import write_gguf
from samples.tiny_model import make_tiny_gguf, make_tiny_model

from engine.bundle.bundle import open_bundle
from engine.commands import cli
from engine.config import EngineConfig
from engine.conversion.convert import convert
from engine.errors import InvalidRequestError
from engine.executor.exact import ExactExecutor
from engine.model.families import config_from_hf
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import OpenedModel, load_weights, open_model
from engine.session.loaded_model import LoadedModel
from engine.text import chat_templates
from native_kernels.reference import ReferenceOperators


def logits(opened: OpenedModel, tokens: np.ndarray) -> np.ndarray:
    weights, ops = load_weights(opened), ReferenceOperators()
    model = Transformer(opened.config, weights, ExactExecutor(opened.config, weights, ops), ops)
    return model.logits(model.forward(tokens, KVCache(opened.config, CONTEXT)))


@pytest.fixture(scope="module")
def prosparse(references: Callable[[str], Reference]) -> Reference:
    return references("prosparse")


def test_a_powerinfer_file_of_prosparse(prosparse: Reference, tmp_path: Path) -> None:
    """Its metadata cannot say FATReLU: without the flag it is ReLU, with it what transformers computes."""
    path = write_gguf(prosparse.folder, tmp_path / "m.gguf", prosparse.case, powerinfer=True)
    as_it_is, told = open_model(path), open_model(path, "fatrelu:0.3")
    assert (as_it_is.config.activation, as_it_is.activation_origin) == ("relu-glu", "family")
    assert (told.config.activation, told.config.activation_threshold) == ("fatrelu-glu", 0.3)
    assert told.activation_origin == "override"
    assert np.abs(logits(told, prosparse.tokens) - prosparse.logits).max() < 2e-4
    assert np.abs(logits(as_it_is, prosparse.tokens) - prosparse.logits).max() > 0.1
    bundle = convert(path, tmp_path / "bundle", "f16", activation="fatrelu:0.3").bundle
    assert open_bundle(bundle).manifest.config == told.config  # the bundle says it from now on
    assert open_model(bundle).activation_origin == "config"


def test_where_the_activation_came_from(prosparse: Reference, tmp_path: Path) -> None:
    assert open_model(prosparse.folder).activation_origin == "config"
    assert open_model(make_tiny_gguf(tmp_path / "m.gguf")).activation_origin == "metadata"
    folder = make_reference("falcon-7b", tmp_path / "falcon").folder
    assert open_model(folder).activation_origin == "config"
    said = json.loads((folder / "config.json").read_text())
    del said["activation"]
    (folder / "config.json").write_text(json.dumps(said))
    assert open_model(folder).activation_origin == "family"


def test_only_what_the_ffn_has_a_form_of(references: Callable[[str], Reference], tmp_path: Path) -> None:
    gated = open_model(make_tiny_model(tmp_path / "m")).config
    for text in ("relu", "drelu", "silu", "gelu", "gelu-tanh", "relu-glu"):
        assert gated.with_activation(text).activation == text.removesuffix("-glu") + "-glu"
    plain = open_model(references("opt").folder).config
    assert plain.with_activation("gelu-tanh").activation == "gelu-tanh"
    for text in ("silu", "drelu", "relu-glu", "fatrelu:0.1"):
        with pytest.raises(InvalidRequestError, match="relu, relu2, gelu, gelu-tanh"):
            plain.with_activation(text)


def test_the_flag_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(make_tiny_gguf(tmp_path / "m.gguf"))
    assert cli.main(["inspect", path, "--activation", "fatrelu:0.01", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["activation"], values["activation_from"]) == ("fatrelu-glu", "override")
    assert values["config"]["activation_threshold"] == 0.01
    assert cli.main(["inspect", path, "--activation", "fatrelu:0.01"]) == 0
    assert "fatrelu-glu above 0.01" in capsys.readouterr().out
    assert cli.main(["inspect", path]) == 0
    assert "relu-glu" in capsys.readouterr().out
    assert cli.main(["convert", path, str(tmp_path / "b"), "--codec", "f16", "--activation", "silu"]) == 0
    assert open_bundle(tmp_path / "b").manifest.config.activation == "silu-glu"
    capsys.readouterr()
    assert cli.main(["inspect", path, "--activation", "mish"]) == 1
    assert re.search("'mish'.* drelu, fatrelu", capsys.readouterr().err)
    model = LoadedModel.load(path, EngineConfig(context=64, activation="silu"))
    assert (model.mode, model.opened.config.activation) == ("dense", "silu-glu")


def test_an_activation_that_the_weights_were_not_trained_for_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silu, relu = (str(make_tiny_gguf(tmp_path / f"{name}.gguf", activation=name)) for name in ("silu", "relu"))
    cases = ((silu, "relu", True), (relu, "silu", True), (silu, "gelu", False), (relu, "fatrelu:0.01", False))
    for path, activation, warned in cases:
        assert bool(open_model(Path(path), activation).activation_warning) == warned
    said = ["--max-tokens", "2", "--prompt", "a", "--raw", "--device", "cpu", "--activation", "relu"]
    assert cli.main(["generate", silu, *said]) == 0
    assert "relu-glu" in capsys.readouterr().err
    assert cli.main(["inspect", silu, "--activation", "relu"]) == 0
    assert "relu-glu" in capsys.readouterr().out
    assert cli.main(["convert", silu, str(tmp_path / "b"), "--codec", "f16", "--activation", "relu"]) == 0
    assert "relu-glu" in capsys.readouterr().err


def test_a_base_model_says_so_before_it_chats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_templates, "_BY_MARKS", ())  # the tiny vocabulary has the marks of Phi-3
    folder, words = make_tiny_model(tmp_path / "m"), "base model"
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    path = str(folder)
    assert cli.main(["inspect", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "base"
    said = ["generate", path, "--max-tokens", "2", "--prompt", "a", "--device", "cpu"]
    for extra, told in (([], True), (["--raw"], False), (["--template", "plain"], False)):
        assert cli.main([*said, *extra]) == 0
        assert (words in capsys.readouterr().err) == told


def test_a_class_says_more_than_the_type_of_the_model_it_was_made_from() -> None:
    config = {**SHAPE, "hidden_act": "relu", "rms_norm_eps": 1e-5}
    for model_type, name, activation in (
        ("mistral", "TurboSparseMistralForCausalLM", "drelu-glu"),
        ("bamboo", "BambooForCausalLM", "drelu-glu"),
        ("mistral", "MistralForCausalLM", "relu-glu"),
        ("llama", "LlamaForCausalLM", "relu-glu"),
    ):
        found = config_from_hf({**config, "model_type": model_type, "architectures": [name]}, {})
        assert found.activation == activation
    assert config_from_hf({**config, "model_type": "llama", "hidden_act": "drelu"}, {}).activation == "drelu-glu"
