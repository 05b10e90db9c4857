"""The command pull against the hub's fake, with the real list of installed models."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.download_places import BLOCK, ROOT, wait_for
from fakes.hub import FakeHub
from support.repetitions import some_daily
from support.systems import ON_WINDOWS
from support.windows_files import refused_like_windows

from engine.assets import starter_model
from engine.commands.cli import main
from engine.files import matching
from engine.library.estimate.catalogue import load_catalogue
from engine.library.hub.download_request import of_entry
from engine.library.hub.variants import is_pickled
from engine.library.owned.installed import Library
from engine.session.resolve_model import resolve_model

GGUF = "starter-chat-q8_0.gguf"


@pytest.fixture(scope="module")
def starter_bytes() -> bytes:
    return (starter_model() / GGUF).read_bytes()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, starter_bytes: bytes) -> Iterator[FakeHub]:
    with FakeHub() as found:
        found.connect(monkeypatch, tmp_path)
        found.add("maker/pip-gguf", {GGUF: starter_bytes, "README.md": b"# Pip"})
        yield found


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_repository_is_pulled_and_can_be_opened_by_its_name(
    hub: FakeHub, capsys: pytest.CaptureFixture[str], starter_bytes: bytes
) -> None:
    assert main(["pull", "maker/pip-gguf", "--json"]) == 0
    said = lines(capsys)
    assert {line["event"] for line in said} == {"progress", "verified", "installed"}
    assert said[-1]["event"] == "installed"
    assert said[-1]["model"] == "maker/pip-gguf"
    assert said[-1]["bytes"] == said[-1]["total_bytes"] == len(starter_bytes)
    (verified,) = [line for line in said if line["event"] == "verified"]
    assert verified["file"] == GGUF
    assert Path(said[-1]["path"]).read_bytes() == starter_bytes
    (model,) = [model for model in Library().models() if model.id == "maker/pip-gguf"]
    assert (model.owned, model.origin, model.repo) == (True, "download", "maker/pip-gguf")
    assert model.state != "broken"
    assert resolve_model("maker/pip-gguf") == Path(model.path)
    assert main(["pull", f"{hub.url}/maker/pip-gguf"]) == 0
    assert "maker/pip-gguf" in capsys.readouterr().out
    assert hub.sent_bytes(GGUF) == len(starter_bytes), "what lies there and is right is not fetched again"


def test_one_of_several_files(hub: FakeHub, capsys: pytest.CaptureFixture[str], starter_bytes: bytes) -> None:
    hub.add("maker/many", {"pip-q8_0.gguf": starter_bytes, "pip-q4_0.gguf": b"another"})
    assert main(["pull", "maker/many"]) == 1
    assert "q4_0, q8_0" in capsys.readouterr().err
    assert main(["pull", "maker/many", "--file", "pip-q8_0.gguf", "--json"]) == 0
    assert lines(capsys)[-1]["path"].endswith("pip-q8_0.gguf")
    assert main(["pull", "maker/many", "--file", "q2_k"]) == 1
    assert "q2_k" in capsys.readouterr().err


def test_a_model_of_the_catalogue(hub: FakeHub, capsys: pytest.CaptureFixture[str], starter_bytes: bytes) -> None:
    entry = next(entry for entry in load_catalogue().entries if entry.format == "gguf" and "*" not in entry.files[0])
    hub.add(entry.repo, {name: starter_bytes for name in entry.files if name.endswith(".gguf")})
    assert main(["pull", entry.id, "--json"]) == 0
    installed = lines(capsys)[-1]
    model = Library().get(installed["model"])
    assert (model.catalogue_id, model.name, model.licence, model.kind) == (
        entry.id, entry.name, entry.licence, entry.kind,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "error"),
    [("no-such-model", "ModelNotFoundError"), ("a/b/c", "InvalidRequestError"), ("no/body", "RepositoryNotFoundError")],
)
def test_failures_are_told_kindly(hub: FakeHub, capsys: pytest.CaptureFixture[str], model: str, error: str) -> None:
    assert main(["pull", model, "--json"]) == 1
    caught = capsys.readouterr()
    (last,) = [json.loads(line) for line in caught.out.splitlines() if '"failed"' in line]
    assert last["error"] == error
    assert caught.err == f"{last['message']}\n{last['hint']}\n"


def test_what_is_no_model_is_fetched_and_not_listed(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.add("maker/junk", {"junk.gguf": b"GGUF is not what this is" * 99})
    with refused_like_windows():
        assert main(["pull", "maker/junk", "--json"]) == 1
    (last,) = [line for line in lines(capsys) if line["event"] == "failed"]
    assert last["error"] == "UnsupportedModelError"
    assert [model.id for model in Library().models()] == ["hearth/starter-chat"]
    assert not Library().folder_for("maker/junk").exists()


@pytest.mark.parametrize("way", some_daily(["kill", "interrupt"], ["kill"]))
def test_an_ended_pull_goes_on_where_it_was(hub: FakeHub, way: str, starter_bytes: bytes) -> None:
    if ON_WINDOWS and way == "interrupt":
        pytest.skip("a process of Windows cannot be sent Ctrl-C by itself")
    half = len(starter_bytes) // 2
    hub.bytes_per_s = 8 << 20
    hub.fail(GGUF, stall_after=half)  # it ends before the signal on no machine
    command = [sys.executable, "-m", "engine", "pull", "maker/pip-gguf", "--json"]
    child = subprocess.Popen(command, cwd=ROOT, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: hub.sent_bytes(GGUF) >= half and matching(Library().folder, ".downloads/*/*.part"))
    child.kill() if way == "kill" else child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert way == "kill" or child.returncode == 130
    if way == "interrupt":
        assert b"continues from here" in err
        assert b"Traceback" not in err
    (part,) = Library().folder.glob(".downloads/*/*.part")
    lay = part.stat().st_size
    hub.bytes_per_s = 0
    assert main(["pull", "maker/pip-gguf"]) == 0
    asked = hub.of_file(GGUF)[-1].start
    assert lay - asked <= (BLOCK if way == "kill" else 0)
    assert Path(Library().get("maker/pip-gguf").path).read_bytes() == starter_bytes


def test_every_model_of_the_catalogue_has_a_place_of_its_own() -> None:
    """No two share a folder, and none asks for a file that could hold code."""
    library = Library()
    wanted = [of_entry(entry, library) for entry in load_catalogue().entries]
    folders = [str(library.folder_for(one.model)).casefold() for one in wanted]
    assert sorted(folders) == sorted(set(folders))
    assert not any(is_pickled(pattern.replace("*", "activation_0")) for one in wanted for pattern in one.patterns)
    assert all(one.patterns for one in wanted)
