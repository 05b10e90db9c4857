"""The command line: JSON alone on stdout, failures in two sentences on stderr, and the documented exit codes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import cli

GENERATE = {"prompt_tokens", "tokens", "text", "finish_reason", "stats"}
STATS = {"ttft_s", "prefill_tok_s", "decode_tok_s", "gpu_neuron_load", "active_share", "fired_share", "vram_bytes",
         "ram_bytes"}  # fmt: skip
BENCH = {"prefill_tok_s", "decode_tok_s", "bytes_per_token", "floor_s_per_token", "share_of_floor", "vram_bytes",
         "ram_bytes", "gpu_neuron_load", "active_share", "fired_share", "timings", "hardware"}  # fmt: skip
INSPECT = {"format", "family", "activation", "config", "tensors", "codecs", "parameters", "has_predictors", "has_stats",
           "has_placement", "chat_template"}  # fmt: skip


def run_json(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert cli.main([*argv, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1
    values: dict[str, Any] = json.loads(captured.out)
    return values


def test_generate_answers_greedily_with_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    values = run_json(
        capsys, "generate", "starter-chat", "--prompt", "What is the capital of Peru?", "--temperature", "0"
    )
    assert values.keys() >= GENERATE
    assert values["stats"].keys() >= STATS
    assert values["text"] == "Lima is the capital of Peru."
    assert values["finish_reason"] == "stop"
    assert values["prompt_tokens"][:2] == [0, 3]
    assert values["stats"]["vram_bytes"] == 0
    assert values["stats"]["gpu_neuron_load"] is None


def test_raw_puts_bos_before_the_text_once_and_parses_special_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--raw", "--max-tokens", "1", "--temperature", "0")
    plain = run_json(capsys, "generate", "starter-chat", "--prompt", "Hello<|end|>", *options)
    marked = run_json(capsys, "generate", "starter-chat", "--prompt", "<|begin|>Hello<|end|>", *options)
    assert plain["prompt_tokens"] == marked["prompt_tokens"]
    assert plain["prompt_tokens"][0] == 0
    assert plain["prompt_tokens"][-1] == 1
    assert plain["finish_reason"] in ("length", "stop")


def test_generate_streams_text_to_stdout_and_figures_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["generate", "starter-chat", "--prompt", "Hello!", "--temperature", "0"]) == 0
    captured = capsys.readouterr()
    assert "help you" in captured.out
    assert "tok/s" in captured.err
    assert "tok/s" not in captured.out


def test_logits_of_the_last_and_of_every_position(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    last, every = tmp_path / "last.npz", tmp_path / "every"
    assert run_json(capsys, "logits", "starter-chat", "--tokens", "0,1750,759", "--out", str(last)) == {
        "file": str(last), "vocab_size": 8192,
    }  # fmt: skip
    run_json(capsys, "logits", "starter-chat", "--tokens", "0,1750,759", "--out", str(every), "--all")
    with np.load(last) as a, np.load(every) as b:
        assert a["logits"].shape == (8192,)
        assert b["logits"].shape == (3, 8192)
        assert a["logits"].dtype == np.float32
        assert np.allclose(a["logits"], b["logits"][-1], atol=1e-4)


def test_eval_gives_perplexity_and_agreement(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Once upon a time there was a little fox who lived by the sea. " * 8, encoding="utf-8")
    values = run_json(capsys, "eval", "starter-chat", "--text", str(text), "--max-tokens", "90", "--context", "64",
                      "--against", "dense")  # fmt: skip
    assert values["tokens"] == 90
    assert values["perplexity"] == pytest.approx(np.exp(values["nll"]))
    assert values["top1_agreement"] == 1.0
    assert values.keys() >= {"active_share", "fired_share", "kl_divergence"}
    choices = tmp_path / "choices.jsonl"
    choices.write_text('{"question": "Once upon a", "choices": ["time", "qxzzv"], "answer": 0}\n')
    values = run_json(capsys, "eval", "starter-chat", "--choices", str(choices))
    assert (values["questions"], values["accuracy"]) == (1, 1.0)


def test_bench_measures_against_a_floor_of_counted_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    values = run_json(capsys, "bench", "starter-chat", "--prompt-tokens", "16", "--gen-tokens", "8", "--repeat", "1")
    assert values.keys() >= BENCH
    assert values["decode_tok_s"] > 0
    assert values["bytes_per_token"]["gpu"] == 0
    assert 20e6 < values["bytes_per_token"]["cpu"] < 140e6
    assert values["share_of_floor"] == pytest.approx(values["floor_s_per_token"] * values["decode_tok_s"])
    assert values["hardware"]["cpu"]["bytes_per_s"] > 0


def test_inspect_and_probe_give_their_fields(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    values = run_json(capsys, "inspect", "starter-chat")
    assert values.keys() >= INSPECT
    assert (values["format"], values["activation"], values["parameters"]) == ("gguf", "relu-glu", 32_514_560)
    assert values["config"]["n_layers"] == 8
    assert values["chat_template"] is True
    profile = run_json(capsys, "probe")
    assert profile.keys() >= {"cpu", "ram", "gpus", "sync_s"}
    saved = tmp_path / "machine.json"
    saved.write_text(json.dumps(profile))
    assert cli.main(["generate", "starter-chat", "--prompt", "Hi", "--max-tokens", "2", "--hardware", str(saved)]) == 0


@pytest.mark.parametrize("argv", [["inspect", "starter-chat"], ["probe"]])
def test_people_get_words(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    assert cli.main(argv) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) >= 3
    assert "{" not in out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["generate", "no-such-model", "--prompt", "x"], "no-such-model"),
        (["generate", "starter-chat", "--prompt", "x", "--device", "cuda"], "cannot be used"),
        (["generate", "starter-chat", "--prompt", "x", "--mode", "sparse"], "no predictors"),
        (["generate", "starter-chat", "--prompt", "x", "--temperature", "-1"], "temperature"),
        (["logits", "starter-chat", "--tokens", "1,x", "--out", "y.npz"], "no list of ids"),
        (["logits", "starter-chat", "--tokens", "99999", "--out", "y.npz"], "outside the vocabulary"),
        (["eval", "starter-chat", "--text", "no-such-file.txt"], "cannot be read"),
        (["bench", "starter-chat", "--batch", "4"], "one sequence"),
        (["bench", "starter-chat", "--prompt-tokens", "2000"], "do not fit"),
    ],
)
def test_a_failure_of_the_world_is_two_sentences_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], argv: list[str], words: str
) -> None:
    assert cli.main(argv) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    fact, hint = captured.err.strip().splitlines()
    assert words in fact
    assert hint


@pytest.mark.parametrize("argv", [[], ["dance"], ["generate"], ["generate", "x"], ["eval", "starter-chat"]])
def test_wrong_usage_is_exit_code_2(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(argv)
    assert left.value.code == 2


@pytest.mark.parametrize("command", ["generate", "chat", "logits", "eval", "bench", "inspect", "probe", "host"])
def test_help_has_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main([command, "--help"])
    assert left.value.code == 0
    assert f"hearth-engine {command}" in capsys.readouterr().out.split("Example:")[1]


def test_chat_remembers_starts_over_and_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = io.StringIO("Hi, my name is Hana.\n\nWhat is my name?\n/new\nHello!\n/bye\nnever read\n")
    monkeypatch.setattr("sys.stdin", said)
    assert cli.main(["chat", "starter-chat", "--temperature", "0"]) == 0
    out = capsys.readouterr().out
    assert "Your name is Hana." in out
    assert "A new chat." in out
    assert said.readline() == "never read\n"
