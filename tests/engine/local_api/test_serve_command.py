"""`python -m engine serve`: says where and with which key, answers, and ends cleanly."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import openai
import pytest
from samples.tiny_model import make_tiny_model

from engine.commands.cli import main
from engine.local_api.keys import KEY_VARIABLE
from engine.service import request_events

KEY = "a-key-for-tests"


def models(address: str, key: str) -> list[str]:
    asked = urllib.request.Request(f"{address}/models", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=60) as reply:
        return [model["id"] for model in json.load(reply)["data"]]


@pytest.mark.skipif(sys.platform == "win32", reason="a process of Windows cannot be sent Ctrl-C by itself")
def test_it_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    environment = {**os.environ, KEY_VARIABLE: "out-of-the-environment"}
    command = [sys.executable, "-m", "engine", "serve", "starter-chat", "--port", "0", "--json"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as running:  # fmt: skip
        assert running.stdout is not None
        told = json.loads(running.stdout.readline())
        assert (told["model"], told["key"]) == ("Pip", "out-of-the-environment")
        assert models(told["address"], told["key"]) == ["Pip"]
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (130, "", "")
    with pytest.raises(urllib.error.URLError):
        models(told["address"], told["key"])


def test_a_server_that_lost_its_gpu_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_events, "process_failure", lambda: "CUDA_ERROR_LAUNCH_FAILED")
    assert main(["serve", "no-such-model", "--port", "0", "--key", KEY]) == 1
    first, *others = capsys.readouterr().err.splitlines()
    assert "CUDA_ERROR_LAUNCH_FAILED" in first
    assert "restart" in first
    assert "CUDA" not in "".join(others)


@pytest.mark.skipif(sys.platform == "win32", reason="a process of Windows cannot be sent Ctrl-C by itself")
def test_requests_load_other_models(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "tiny")
    command = [sys.executable, "-m", "engine", "serve", str(model), "--port", "0", "--json", "--device", "cpu"]
    with subprocess.Popen(
        [*command, "--load-on-demand", "--unload-after", "60", "--requests", "2"],
        env={**os.environ, KEY_VARIABLE: KEY},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as running:  # fmt: skip
        assert running.stdout is not None
        told = json.loads(running.stdout.readline())
        with openai.OpenAI(base_url=told["address"], api_key=KEY, max_retries=0, timeout=60) as client:
            for name in ("Pip", "tiny"):
                assert client.completions.create(model=name, prompt="the cat", max_tokens=2).model == name
            (model / "model.safetensors").write_bytes(b"damaged")
            assert client.completions.create(model="pip", prompt="the cat", max_tokens=2).model == "Pip"
            with pytest.raises(openai.APIStatusError):
                client.completions.create(model="tiny", prompt="the cat", max_tokens=2)
            assert client.completions.create(model="pip", prompt="the cat", max_tokens=2).model == "Pip"
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    assert "model.safetensors" in err


def test_what_cannot_be_served_is_said_in_one_sentence_and_a_hint(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["serve", "no-such-model", "--port", "0", "--key", "a-key-for-tests"]) == 1
    assert main(["serve", "starter-chat", "--key", "short"]) == 1
    assert main(["serve", "starter-chat", "--key-file", str(tmp_path / "none")]) == 1
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "starter-chat", "--port", str(port), "--key", "a-key-for-tests"]) == 1
    assert main(["serve", "starter-chat", "--unload-after", "5", "--key", KEY]) == 1
    assert main(["serve", "starter-chat", "--load-on-demand", "--unload-after", "-5", "--port", "0", "--key", KEY]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert len(lines) == 12, lines
    assert "no-such-model" in lines[0]
    assert "8 to 200" in lines[2]
    assert "none" in lines[4]
    assert str(port) in lines[6]
    assert "--load-on-demand" in lines[9]
    assert "-300" in lines[10]
