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

import pytest

from engine.commands.cli import main
from engine.local_api.keys import KEY_VARIABLE


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


def test_what_cannot_be_served_is_said_in_one_sentence_and_a_hint(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["serve", "no-such-model", "--port", "0", "--key", "a-key-for-tests"]) == 1
    assert main(["serve", "starter-chat", "--key", "short"]) == 1
    assert main(["serve", "starter-chat", "--key-file", str(tmp_path / "none")]) == 1
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "starter-chat", "--port", str(port), "--key", "a-key-for-tests"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert len(lines) == 8, lines
    assert "no-such-model" in lines[0]
    assert "8 to 200" in lines[2]
    assert "none" in lines[4]
    assert str(port) in lines[6]
