"""Every command that README and docs show is one that the program takes, and those that can run here do run.

What needs a graphics card, a network or a person is held by its parser alone: see NEEDS.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from samples.tiny_model import make_tiny_gguf
from support.documented import PAGES, ROOT, Command, blocks, commands

from app.startup.command_line import main as app_main
from engine.commands import cli
from installer import bootstrap

LANGUAGES = {"console", "text", "json", "python", "cuda", "powershell"}
COMMANDS = [command for page in PAGES for command in commands(page)]
OF_THE_SYSTEM = {".", "git", "sudo", "tar", "curl", "sha256sum", "export", "cd"}

# Why a command is not run here: a word that it holds, and what it would need.
NEEDS = {
    "--device": "a graphics card",
    "pull": "a network",
    "MODEL": "a model in the place of a word",
    "REPO": "a network",
    "serve": "somebody who asks, and an end: tests/engine/local_api has both",
    "host": "the window's end of the protocol",
}


def test_every_block_says_what_it_is() -> None:
    unknown = [f"{b.page.name}:{b.line}: {b.language!r}" for page in PAGES for b in blocks(page)
               if b.language not in LANGUAGES]  # fmt: skip
    assert unknown == []


def test_there_are_commands() -> None:
    assert len([command for command in COMMANDS if command.engine]) > 10


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_the_program_takes_the_command(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    if command.engine is not None:
        cli.build_parser().parse_args(command.engine)
    elif "installer/bootstrap.py" in command.words:
        own, passed_on = bootstrap.parse(command.words[2:])
        if own.command == "run":
            check_options_of_the_app(passed_on, capsys)
    elif command.words[0] == "hearth" or command.words[1:3] == ("-m", "app"):
        check_options_of_the_app(command.words[1:], capsys)
    elif command.words[1:3] == ("-m", "pytest"):
        assert [path for path in paths_of(command.words[3:]) if not (ROOT / path).exists()] == []
    elif command.words[0] in ("python", "python3"):
        script, options = ROOT / command.words[1], {word for word in command.words[2:] if word.startswith("--")}
        assert options <= options_of(script)
    else:
        assert command.words[0] in OF_THE_SYSTEM, "neither ours nor known"


def check_options_of_the_app(words: list[str] | tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app_main(["--help"])
    known = capsys.readouterr().out
    assert [word for word in words if word.startswith("-") and word not in known] == []


def paths_of(words: tuple[str, ...]) -> list[str]:
    """What pytest is to run: neither its options nor what stands behind them."""
    behind = {i + 1 for i, word in enumerate(words) if word in ("-k", "-m", "-n")}
    return [word.split("::")[0] for i, word in enumerate(words) if not word.startswith("-") and i not in behind]


def options_of(script: Path) -> set[str]:
    """The options that a script gives to its argparse parser; --help always."""
    calls = (node for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    names = (argument.value for call in calls if getattr(call.func, "attr", "") == "add_argument"
             for argument in call.args if isinstance(argument, ast.Constant))  # fmt: skip
    return {str(name) for name in names} | {"--help"}


def why_not_run(command: Command) -> str:
    """Empty where it can run here."""
    if command.inline:
        return "it stands in a sentence, with words in the place of names"
    if command.engine is None:
        return "it sets up, tests or measures"
    return next((needed for word, needed in NEEDS.items() if word in command.words), "")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the names that the pages use mean something: a model of the person's, and a text."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "path" / "to").mkdir(parents=True)
    make_tiny_gguf(folder / "path" / "to" / "model.gguf", d_model=64, d_ff=256, max_context=512)
    text = "Anna went to the sea with her dog. The dog found a shell, and Anna took it home.\n"
    (folder / "story.txt").write_text(text * 60, encoding="utf-8")
    return folder


RUN = [command for command in COMMANDS if not why_not_run(command)]
CHEAP = ("inspect", "catalogue", "list", "solve", "probe")  # less than a second in this process


@pytest.mark.parametrize("command", [c for c in RUN if c.engine and c.engine[0] in CHEAP and "path/to" not in str(c)],
                         ids=str)  # fmt: skip
def test_a_cheap_command_does_what_it_says(
    command: Command, desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk)
    assert command.engine is not None
    assert cli.main(command.engine) == 0
    assert capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_command_that_can_run_here_runs_page_by_page(desk: Path) -> None:
    """In the order of the pages: a later command may need what an earlier one made."""
    paths = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    failed = []
    for command in RUN:
        assert command.engine is not None
        words = [sys.executable, "-m", "engine", *(word.replace("path/to/model", "path/to/model.gguf")
                                                   for word in command.engine)]  # fmt: skip
        done = subprocess.run(words, cwd=desk, env=os.environ | paths, input="Hello!\n", capture_output=True, text=True,
                              check=False)  # fmt: skip
        if done.returncode or not done.stdout:
            failed.append(f"{command}: exit code {done.returncode}: {done.stderr[-500:]}")
    assert failed == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_script_says_what_it_takes() -> None:
    scripts = {
        ROOT / command.words[1] for command in COMMANDS if command.words[1:2] and command.words[1].endswith(".py")
    }
    with_options = sorted(script for script in scripts if "ArgumentParser" in script.read_text(encoding="utf-8"))
    assert with_options
    for script in with_options:
        done = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), script
        assert "usage" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_is_handed_over_to_the_app_answers() -> None:
    """`run -- ...` hands what stands behind the dashes to `python -m app`."""
    handed = [
        bootstrap.parse(command.words[2:])[1] for command in COMMANDS if "installer/bootstrap.py" in command.words
    ]
    asked = [words for words in handed if "--prompt" in words]
    assert asked
    for words in asked:
        done = subprocess.run(
            [sys.executable, "-m", "app", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
