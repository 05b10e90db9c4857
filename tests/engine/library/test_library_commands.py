"""list, import and remove on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from samples.tiny_model import make_tiny_gguf

from engine.commands import cli
from engine.library.owned.installed import STARTER_ID, Library


def run_json(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert cli.main([*argv, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    values: dict[str, Any] = json.loads(out)
    return values


def test_a_model_is_imported_listed_used_removed_and_brought_back(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    gguf = str(make_tiny_gguf(tmp_path / "a.gguf"))
    taken = run_json(capsys, "import", gguf, "--copy", "--name", "My model")["model"]
    assert (taken["id"], taken["origin"], taken["owned"]) == ("local/my-model", "copied", True)
    values = run_json(capsys, "list")
    assert values["folder"] == str(Library().folder)
    assert [model["id"] for model in values["models"]] == [STARTER_ID, "local/my-model"]
    assert run_json(capsys, "inspect", "my model")["config"]["n_layers"] == 2
    prompt = ("--prompt", "a", "--max-tokens", "2", "--temperature", "0", "--device", "cpu")
    assert len(run_json(capsys, "generate", "local/my-model", *prompt)["tokens"]) <= 2
    gone = run_json(capsys, "remove", "My model")
    assert (gone["removed"], gone["bytes"]) == ("local/my-model", taken["n_bytes"])
    assert cli.main(["inspect", "my model"]) == 1
    assert "my model" in capsys.readouterr().err
    assert run_json(capsys, "remove", "--undo", gone["undo"])["restored"] == "local/my-model"
    assert len(run_json(capsys, "list")["models"]) == 2


def test_the_same_in_words(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    gguf = str(make_tiny_gguf(tmp_path / "a.gguf"))
    for argv in (["import", gguf], ["list"], ["remove", "local/tiny"]):
        assert cli.main(argv) == 0
    out = capsys.readouterr().out
    for words in ("hearth/starter-chat", "local/tiny", "in place, in", "needs preparing: ", "stay where they are",
                  "remove --undo"):  # fmt: skip
        assert words in out
    token = out.split("--undo ")[1].split()[0]
    assert cli.main(["remove", "--undo", token]) == 0
    assert "is back" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["remove", "nobody"], "'nobody'"),
        (["remove"], "--undo"),
        (["remove", "a", "--undo", "b"], "--undo"),
        (["remove", "--undo", "0123456789abcdef"], "deleted"),
        (["remove", "hearth/starter-chat"], "starter model"),
        (["import", "nothing.gguf"], "nothing.gguf"),
    ],
)
def test_failures_are_two_sentences(capsys: pytest.CaptureFixture[str], argv: list[str], words: str) -> None:
    assert cli.main(argv) == 1
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 2
    assert captured.out == ""


def test_a_broken_model_can_be_removed_by_its_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    gguf = make_tiny_gguf(tmp_path / "a.gguf")
    cli.main(["import", str(gguf)])
    gguf.unlink()
    assert cli.main(["inspect", "Tiny"]) == 1
    assert "cannot be loaded" in capsys.readouterr().err
    assert run_json(capsys, "remove", "Tiny")["removed"] == "local/tiny"


def test_the_starter_runs_whatever_is_wrong_with_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    home = Library().home
    home.mkdir(parents=True)
    (home / "library.json").write_text(json.dumps({"schema_version": 99}))
    assert run_json(capsys, "inspect", "pip")["name"] == "Pip"
    assert cli.main(["list"]) == 1
    assert "newer Hearth" in capsys.readouterr().err
