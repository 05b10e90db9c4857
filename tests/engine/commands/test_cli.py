"""The command line: JSON alone on stdout, failures in two sentences on stderr, and the documented exit codes."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from samples.tiny_model import make_tiny_gguf, make_tiny_model

from engine.commands import cli
from engine.commands.console import ProgressBar, make_streams_safe
from engine.config import KV_CODECS
from engine.evaluation import bench, bench_batch
from engine.model.weights import open_model
from engine.session import generate
from engine.session.chat_session import ChatSession
from engine.session.generate import TokenEvent
from engine.session.loaded_model import LoadedModel
from engine.text.context_fit import ChatMessage, Fitted

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


@pytest.mark.parametrize("raw", [[], ["--raw"]])
@pytest.mark.parametrize(
    ("option", "text", "pattern"),
    [
        ("--regex", "[A-Z]{3}-[0-9]", "[A-Z]{3}-[0-9]"),
        ("--grammar", 'root ::= "fox" [!?]{2}', "fox[!?]{2}"),
        ("--json-schema", '{"enum": [1, "a"]}', '1|"a"'),
    ],
)
def test_generate_follows_a_constraint(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str, text: str, pattern: str, raw: list[str]
) -> None:
    file = tmp_path / "constraint"
    file.write_text(text, encoding="utf-8")
    given = text if option == "--regex" else str(file)
    found = run_json(capsys, "generate", "starter-chat", "--prompt", "Hello!", option, given, *raw)
    assert re.fullmatch(pattern, found["text"]), found["text"]
    assert found["finish_reason"] == "stop"


def test_generate_streams_text_to_stdout_and_figures_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["generate", "starter-chat", "--prompt", "Hello!", "--temperature", "0"]) == 0
    captured = capsys.readouterr()
    assert "help you" in captured.out
    assert "tok/s" in captured.err
    assert "tok/s" not in captured.out


def test_logits_of_the_last_and_of_every_position(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    last, every = tmp_path / "last.npz", tmp_path / "every"
    assert run_json(capsys, "logits", "starter-chat", "--tokens", "0,1750,759", "--out", str(last)) == {
        "file": str(last), "vocab_size": 8192, "arithmetic": "decode",
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
                      "--mode", "exact", "--against", "dense")  # fmt: skip
    assert values["tokens"] == 90
    assert values["perplexity"] == pytest.approx(np.exp(values["nll"]))
    assert values["top1_agreement"] > 0.95
    assert values.keys() >= {"active_share", "fired_share", "kl_divergence"}
    assert (values["arithmetic"], values["begins_with_bos"]) == ("decode", True)
    prefilled = run_json(capsys, "eval", "starter-chat", "--text", str(text), "--max-tokens", "20",
                         "--arithmetic", "prefill")  # fmt: skip
    assert prefilled["arithmetic"] == "prefill"
    assert cli.main(["eval", "starter-chat", "--text", str(text), "--max-tokens", "3"]) == 0
    assert "token by token" in capsys.readouterr().out
    choices = tmp_path / "choices.jsonl"
    choices.write_text('{"question": "Once upon a", "choices": ["time", "qxzzv"], "answer": 0}\n')
    values = run_json(capsys, "eval", "starter-chat", "--choices", str(choices))
    assert (values["questions"], values["accuracy"], values["arithmetic"]) == (1, 1.0, "decode")


@pytest.mark.parametrize("batch", ["1", "2"])
def test_nothing_is_read_in_beside_a_measurement(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, batch: str
) -> None:
    held: list[bool] = []

    @contextmanager
    def undisturbed(model: LoadedModel) -> Iterator[None]:
        held.append(True)
        yield
        held.append(False)

    def watched(module: Any, name: str) -> None:
        run = getattr(module, name)

        def running(*given: Any, **named: Any) -> Any:
            assert held == [False, True]
            return run(*given, **named)

        monkeypatch.setattr(module, name, running)

    monkeypatch.setattr(LoadedModel, "undisturbed", undisturbed)
    monkeypatch.setattr(LoadedModel, "wait_for_weights", lambda model, seconds: held.append(False) or True)
    watched(bench, "run")
    watched(bench_batch, "run_batch")
    lengths = ("--prompt-tokens", "4", "--gen-tokens", "2", "--repeat", "1")
    assert run_json(capsys, "bench", "starter-chat", *lengths, "--batch", batch)["batch"] == int(batch)
    assert held == [False, True, False]


def test_bench_measures_against_a_floor_of_counted_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    values = run_json(capsys, "bench", "starter-chat", "--prompt-tokens", "16", "--gen-tokens", "8", "--repeat", "1")
    assert values.keys() >= BENCH
    assert values["decode_tok_s"] > 0
    assert values["bytes_per_token"]["gpu"] == 0
    assert 20e6 < values["bytes_per_token"]["cpu"] < 140e6
    assert values["share_of_floor"] == pytest.approx(values["floor_s_per_token"] * values["decode_tok_s"])
    assert values["hardware"]["cpu"]["bytes_per_s"] > 0


def test_keys_and_values_are_kept_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    moved = [
        run_json(capsys, "bench", "starter-chat", "--prompt-tokens", "64", "--gen-tokens", "2", "--repeat", "1",
                 "--mode", "dense", "--kv-cache", codec)["bytes_per_token"]["cpu"]
        for codec in KV_CODECS
    ]  # fmt: skip
    assert moved == sorted(moved, reverse=True)
    assert len(set(moved)) == len(KV_CODECS)


def test_inspect_and_probe_give_their_fields(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    values = run_json(capsys, "inspect", "starter-chat")
    assert values.keys() >= INSPECT
    assert (values["format"], values["activation"], values["parameters"]) == ("gguf", "relu-glu", 32_514_560)
    assert values["activation_from"] == "metadata"
    assert values["config"]["n_layers"] == 8
    assert values["chat_template"] is True
    profile = run_json(capsys, "probe")
    assert profile.keys() >= {"cpu", "ram", "gpus", "sync_s"}
    saved = tmp_path / "machine.json"
    saved.write_text(json.dumps(profile))
    assert cli.main(["generate", "starter-chat", "--prompt", "Hi", "--max-tokens", "2", "--hardware", str(saved)]) == 0


def test_how_down_lies_and_where_weights_are_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(make_tiny_gguf(tmp_path / "m.gguf"))
    assert run_json(capsys, "inspect", path)["down"] == "row-wise"
    assert cli.main(["inspect", path]) == 0
    assert "row-wise" in capsys.readouterr().out
    arguments = ["bench", path, "--prompt-tokens", "4", "--gen-tokens", "2", "--repeat", "1"]
    assert run_json(capsys, *arguments)["hold"] == "mapped"
    assert cli.main(arguments) == 0
    assert "weights " in capsys.readouterr().out


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
        (["generate", "starter-chat", "--prompt", "x", "--temperature", "-1"], "temperature"),
        (["generate", "starter-chat", "--prompt", "x", "--regex", "("], "regular expression"),
        (["generate", "starter-chat", "--prompt", "x", "--grammar", "no-such-file"], "no-such-file"),
        (["logits", "starter-chat", "--tokens", "1,x", "--out", "y.npz"], "not a list of ids"),
        (["logits", "starter-chat", "--tokens", "99999", "--out", "y.npz"], "outside the vocabulary"),
        (["eval", "starter-chat", "--text", "no-such-file.txt"], "cannot be read"),
        (["eval", "starter-chat", "--text", __file__, "--max-tokens", "-5"], "at least 1"),
        (["bench", "starter-chat", "--batch", "40"], "1 to 32"),
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


@pytest.mark.parametrize(
    "command", ["generate", "chat", "logits", "eval", "bench", "inspect", "convert", "train", "probe", "host"]
)
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
    assert cli.main(["chat", "starter-chat", "--temperature", "0", "--mode", "exact"]) == 0
    out = capsys.readouterr().out
    assert "Your name is Hana." in out
    assert "A new chat." in out
    assert said.readline() == "never read\n"


# --- as a process: streams, encodings, interrupts

QUESTION = ["generate", "starter-chat", "--temperature", "0", "--prompt", "Tell me a story about a fox."]


def start(*argv: str, **options: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **options.pop("environment", {})}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([sys.executable, "-m", "engine", *argv], env=environment, **streams)


ASCII_ONLY = {"PYTHONIOENCODING": "ascii"}


def test_a_terminal_without_unicode_gets_question_marks_and_json_stays_whole(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "тихий 語")  # random weights write every kind of letter
    prompt = ["--raw", "--prompt", "hi", "--max-tokens", "40", "--seed", "1"]
    words = start("generate", str(folder), *prompt, environment=ASCII_ONLY)
    out, err = words.communicate(timeout=300)
    assert (words.returncode, b"?" in out, b"Traceback" in err) == (0, True, False)
    data = start("generate", str(folder), *prompt, "--json", environment=ASCII_ONLY)
    text = json.loads(data.communicate(timeout=300)[0])["text"]
    assert data.returncode == 0
    assert not text.isascii()
    failing = start("generate", str(tmp_path / "немає"), *prompt, environment=ASCII_ONLY)
    assert len(failing.communicate(timeout=300)[1].splitlines()) == 2
    assert failing.returncode == 1


def test_chat_takes_what_the_encoding_of_its_input_cannot_read() -> None:
    chat = start("chat", "starter-chat", "--max-tokens", "4", stdin=subprocess.PIPE, environment=ASCII_ONLY)
    out, err = chat.communicate("Tell me about 🐱 and \udcff\n".encode("utf-8", "surrogateescape"), timeout=300)
    assert (chat.returncode, err) == (0, b"")
    assert b"4 tokens" in out


@pytest.mark.skipif(sys.platform == "win32", reason="Windows knows no SIGINT for one process alone")
def test_an_interrupted_process_ends_its_line_and_says_130() -> None:
    process = start(*QUESTION)
    assert process.stdout
    beginning = process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert (beginning + out).endswith(b"\n")
    assert err == b""


def interrupt_before_step(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Ctrl-C while a token is computed; once."""
    steps, decode = itertools.count(), generate.decode_one_token

    def decode_one_token(*arguments: Any) -> Any:
        if next(steps) == number:
            signal.raise_signal(signal.SIGINT)
        return decode(*arguments)

    monkeypatch.setattr(generate, "decode_one_token", decode_one_token)


def test_an_interrupted_answer_is_one_object_with_what_there_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_before_step(monkeypatch, 2)
    assert cli.main([*QUESTION, "--json"]) == 130
    values = json.loads(capsys.readouterr().out)
    assert values["finish_reason"] == "cancelled"
    # The step that was under way ends where it is, or was through before it heard of it.
    assert len(values["tokens"]) in (3, 4)
    assert "Okay, here is".startswith(values["text"].strip())
    assert values["stats"]["decode_tok_s"] > 0


def test_json_is_whole_however_early_the_interrupt_comes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupting(*arguments: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return open_model(*arguments, **options)

    monkeypatch.setattr("engine.session.load_stages.open_model", interrupting)
    assert cli.main([*QUESTION, "--json"]) == 130
    values = json.loads(capsys.readouterr().out)
    assert (values["tokens"], values["text"], values["finish_reason"]) == ([], "", "cancelled")
    assert values["stats"]["decode_tok_s"] is None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_does_not_wait(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(*arguments: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second interrupt was swallowed")

    monkeypatch.setattr("engine.session.load_stages.load_weights", stuck)
    assert cli.main(QUESTION) == 130
    assert capsys.readouterr().out == ""


def test_ctrl_c_stops_an_answer_and_the_chat_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Tell me a story.\nWhat is the capital of Peru?\n/bye\n"))
    interrupt_before_step(monkeypatch, 3)
    assert cli.main(["chat", "starter-chat", "--temperature", "0", "--mode", "exact"]) == 0
    out = capsys.readouterr().out
    assert out.count("[Stopped]") == 1
    assert out.index("[Stopped]") < out.index("Lima is the capital of Peru.")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_output_that_cannot_be_written_is_a_failure_of_the_world() -> None:
    with open("/dev/full", "wb") as full:
        process = start("inspect", "starter-chat", "--json", stdout=full)
        err = process.communicate(timeout=300)[1].decode()
    assert process.returncode == 1
    assert len(err.splitlines()) == 2
    assert "cannot be written" in err


def test_a_reader_that_leaves_is_no_reason_to_complain() -> None:
    process = start(*QUESTION)
    assert process.stdout
    assert process.stderr
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=300) == 1
    process.stderr.close()


@pytest.mark.skipif(sys.platform == "win32", reason="a shell is needed to close a stream")
@pytest.mark.parametrize("command", ["chat starter-chat <&-", "host <&-", "inspect starter-chat 2>&-"])
def test_closed_streams_are_empty_ones(command: str) -> None:
    script = f'exec "{sys.executable}" -m engine {command}'
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_progress_bar_is_gone_before_anything_else_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    with suppress(ValueError), ProgressBar("Loading") as progress:
        progress(1, 4)
        raise ValueError
    drawn, line = shown.getvalue().split("\r")[1:3]
    assert "25%" in drawn
    assert line.isspace()
    assert len(line) >= len(drawn)
    assert shown.getvalue().endswith("\r")


def test_a_perplexity_beyond_every_number_is_null(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    huge = {"model.norm.weight": np.full(32, 1e6, np.float32)}
    folder = make_tiny_model(tmp_path / "m", tensors=huge)
    text = tmp_path / "text.txt"
    text.write_text("hello there", encoding="utf-8-sig")
    values = run_json(capsys, "eval", str(folder), "--text", str(text))
    assert values["perplexity"] is None
    assert values["nll"] > 700
    assert values["tokens"] == 5  # he llo Ġthe r e: the mark that Windows puts before a text is none of it


def test_a_new_chat_keeps_the_system_message(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def chat(session: ChatSession, messages: list[ChatMessage], *rest: Any) -> tuple[Fitted, Iterator[TokenEvent]]:
        asked.append([message["content"] for message in messages])
        return Fitted([]), iter([TokenEvent("Yes.", 5, finish_reason="stop")])

    monkeypatch.setattr(ChatSession, "chat", chat)
    monkeypatch.setattr("sys.stdin", io.StringIO("One?\nTwo?\n/new\nThree?\n"))
    assert cli.main(["chat", "starter-chat", "--system", "Be kind."]) == 0
    assert asked == [["Be kind.", "One?"], ["Be kind.", "One?", "Yes.", "Two?"], ["Be kind.", "Three?"]]


@pytest.mark.parametrize(
    ("wanted", "frozen", "written"),
    [("", 0, "24\u202fGB, 模型".encode()), ("cp1252", 0, b"24?GB, ??"), ("cp1252", 1, "24\u202fGB, 模型".encode())],
)
def test_output_of_windows_into_a_pipe_is_utf8(
    monkeypatch: pytest.MonkeyPatch, wanted: str, frozen: int, written: bytes
) -> None:
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, encoding="cp1252"))
    monkeypatch.setenv("PYTHONIOENCODING", wanted)
    with monkeypatch.context() as for_now:
        for_now.setattr(sys, "flags", SimpleNamespace(ignore_environment=frozen))
        make_streams_safe(windows=True)
    sys.stdout.write("24\u202fGB, 模型")
    sys.stdout.flush()
    assert pipe.getvalue() == written
