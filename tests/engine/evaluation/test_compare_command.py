"""Comparisons of models: the file that is resumed, pairs and votes, reports, and the command."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from engine.commands import cli
from engine.errors import EngineError, InvalidRequestError, ModelNotFoundError
from engine.evaluation.comparison import Answer, Choice, ComparisonFile, read_prompts
from engine.evaluation.comparison_report import csv_text, html_text, inert, text_table


def answer(model: str, mode: str = "exact", prompt: str = "Why?", text: str = "", seed: int = 0) -> Answer:
    return Answer(
        prompt=prompt, model=model, mode=mode, seed=seed, sampling={}, name=model.title(), ran=mode,
        text=text or f"{model} {mode}", finish_reason="stop", tokens=3, prompt_tokens=5, ttft_s=0.5, decode_tok_s=20.0,
        total_s=1.0, active_share=0.25,
    )  # fmt: skip


def filled(path: Path, *answers: Answer) -> ComparisonFile:
    file = ComparisonFile(path, create=True)
    for one in answers:
        file.add_answer(one)
    return file


def test_a_file_that_was_cut_off_in_a_line_goes_on_behind_the_last_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    first, second = answer("a"), answer("b", text="“Ünïcode” \u2028 \x00")
    filled(path, first, second)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    file = ComparisonFile(path, create=True)
    assert list(file.answers.values()) == [first]
    file.add_answer(second)
    assert path.read_bytes() == whole
    assert list(ComparisonFile(path).answers.values()) == [first, second]


def test_a_vote_during_a_run_loses_no_answer_of_either(tmp_path: Path) -> None:
    running = filled(tmp_path / "r.jsonl", answer("a"), answer("b"))
    voting = ComparisonFile(running.path)
    (pair,) = voting.pairs()
    running.add_answer(answer("c"))
    voting.add_vote(pair, "left")
    running.add_answer(answer("d"))
    found = ComparisonFile(running.path)
    assert [one.model for one in found.answers.values()] == ["a", "b", "c", "d"]
    assert list(found.votes) == [pair.key]
    assert found.votes == running.votes
    running.path.write_bytes(b"")
    with pytest.raises(InvalidRequestError):
        running.add_answer(answer("e"))
    assert running.path.read_bytes() == b""


@pytest.mark.parametrize("value", [10**400, float("inf"), float("nan")])
def test_values_that_no_run_can_have_are_damage(tmp_path: Path, value: float) -> None:
    path = tmp_path / "r.jsonl"
    whole = filled(path, answer("a")).path.read_text()
    for old, new in (('"decode_tok_s": 20.0', f'"decode_tok_s": {json.dumps(value)}'), ("A", "\\ud800")):
        path.write_text(whole.replace(old, new))
        with pytest.raises(InvalidRequestError, match="line 2"):
            ComparisonFile(path)
    path.write_text('{"prompt": "\\ud800"}')
    with pytest.raises(InvalidRequestError, match="Line 1"):
        read_prompts(path)


def test_the_number_of_pairs_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = filled(tmp_path / "r.jsonl", *(answer(name) for name in "abcdef"))
    assert len(file.pairs()) == 15
    monkeypatch.setattr("engine.evaluation.comparison.MOST_PAIRS", 10)
    assert len(file.pairs()) == 10


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "not a comparison"),
        (['{"format": "hearth-chats"}'], "not a comparison"),
        (["[" * 100_000], "not a comparison"),
        (['{"kind": "hearth-comparison", "version": 9, "seed": 1}'], "newer version"),
        (['{"kind": "hearth-comparison", "version": 1, "seed": 1}', '{"kind": "answer"}'], "line 2"),
        (['{"kind": "hearth-comparison", "version": 1, "seed": 1}', '{"kind": "vote", "left": "a", "right": "b", '
          '"choice": "both"}'], "line 2"),
    ],
)  # fmt: skip
def test_other_files_are_refused_with_the_line(tmp_path: Path, lines: list[str], words: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    before = path.read_bytes()
    with pytest.raises(InvalidRequestError, match=words):
        ComparisonFile(path, create=True)
    assert path.read_bytes() == before
    with pytest.raises(ModelNotFoundError):
        ComparisonFile(tmp_path / "none.jsonl")


def test_pairs_keep_their_order_and_sides_and_leave_out_equal_texts(tmp_path: Path) -> None:
    prompts = [str(n) for n in range(20)]
    answers = [answer(m, prompt=p) for p in prompts for m in ("a", "b", "c")]
    same = [answer("a", prompt="same", text="one"), answer("b", prompt="same", text=" one\n")]
    file = filled(tmp_path / "r.jsonl", *answers, *same)
    pairs = file.pairs()
    assert len(pairs) == 60
    assert ComparisonFile(file.path).pairs() == pairs
    assert all(pair.left.prompt == pair.right.prompt for pair in pairs)
    left = [pair.left.model for pair in pairs if {pair.left.model, pair.right.model} == {"a", "b"}]
    assert 2 < left.count("a") < 18, "neither is always at one side"
    assert [pair.left.prompt for pair in pairs] != sorted(pair.left.prompt for pair in pairs)
    file.seed += 1
    assert file.pairs() != pairs


def test_votes_are_counted_for_the_models_and_the_last_one_counts(tmp_path: Path) -> None:
    file = filled(tmp_path / "r.jsonl", *(answer(m, prompt=p) for p in "123456" for m in ("a", "b")))
    wanted = ["a", "a", "b", "equal", "neither"]

    def choice(pair: Any, won: str) -> Choice:
        return ("left" if pair.left.model == won else "right") if won in ("a", "b") else won  # type: ignore[return-value]

    pairs = file.pairs()
    file.add_vote(pairs[0], choice(pairs[0], "b"))
    for pair, won in zip(pairs, wanted, strict=False):
        file.add_vote(pair, choice(pair, won))
    a, b = ComparisonFile(file.path).rows()
    assert (a.label, a.wins, a.losses, a.equal, a.neither, a.win_share) == ("A, exact", 2, 1, 1, 1, 0.625)
    assert (b.wins, b.losses, b.win_share) == (1, 2, 0.375)
    assert (a.decode_tok_s, a.ttft_s, a.tokens, a.answers) == (20.0, 0.5, 3.0, 6)
    assert pairs[5].key not in file.votes


def test_reports_escape_what_models_wrote(tmp_path: Path) -> None:
    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            assert tag not in ("script", "img")

    bad = "<script>alert(1)</script><img src=x>"
    file = filled(tmp_path / "r.jsonl", answer(bad, prompt=bad, text=f"=1+1 {bad}"))
    file.add_failure("gone", "auto", bad)
    page = html_text(file)
    Tags().feed(page)
    assert "alert(1)" in page
    assert "default-src 'none'" in page
    (row,) = csv.DictReader(io.StringIO(csv_text(file)))
    assert row["text"].startswith("'=")
    assert row["decode_tok_s"] == "20.0"
    assert "gone" in text_table(file)


def test_prompts_are_lines_or_objects(tmp_path: Path) -> None:
    text, lines = tmp_path / "p.txt", tmp_path / "p.jsonl"
    text.write_bytes(b"\xef\xbb\xbfOne?\r\n\r\n Two? \n")
    assert read_prompts(text) == [("One?", ""), ("Two?", "")]
    lines.write_text('{"prompt": "One\\nline?", "system": "Be short."}\n{"prompt": "Two?"}\n')
    assert read_prompts(lines) == [("One\nline?", "Be short."), ("Two?", "")]
    for bad in ('{"prompt": 1}', '"text"', '{"prompt": " "}', "{"):
        lines.write_text(f'{{"prompt": "One?"}}\n{bad}\n')
        with pytest.raises(InvalidRequestError, match="Line 2"):
            read_prompts(lines)
    for nothing in (b"\n \n", b"\xff\xfe"):
        text.write_bytes(nothing)
        with pytest.raises(EngineError):
            read_prompts(text)


def run(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> dict[str, Any]:
    assert cli.main(["compare", *argv, "--json"]) == code
    values: dict[str, Any] = json.loads(capsys.readouterr().out)
    return values


def test_the_command_computes_only_what_the_file_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "r.jsonl")
    argv = ["starter-chat", "--prompt", "Hello", "--prompt", "Tell me a story.", "--modes", "exact,dense",
            "--seeds", "1,2", "--out", out, "--max-tokens", "4", "--temperature", "1"]  # fmt: skip
    first = run(capsys, *argv)
    assert (first["answers"], first["already_there"], first["failed"]) == (8, 0, 0)
    lines = Path(out).read_bytes().splitlines(keepends=True)
    Path(out).write_bytes(b"".join(lines[:-1]) + lines[-1][:40])
    second = run(capsys, "gone.gguf", *argv, code=1)
    assert (second["answers"], second["already_there"], second["failed"]) == (1, 7, 8)
    now = Path(out).read_bytes().splitlines(keepends=True)
    known = json.loads(lines[-1]), json.loads(now[-1])
    assert known[0]["text"] == known[1]["text"], "the same seed gives the same answer"
    assert now[:8] == lines[:8]
    shown = run(capsys, "--out", out)
    assert [row["answers"] for row in shown["rows"]] == [4, 4]
    assert set(ComparisonFile(Path(out)).failures) == {("gone.gguf", "exact", ""), ("gone.gguf", "dense", "")}


def test_a_killed_run_goes_on_behind_its_last_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.jsonl"
    argv = ["starter-chat", "--prompt", "Tell me a story.", "--modes", "exact,sparse", "--seeds", "1,2,3,4",
            "--out", str(out), "--max-tokens", "40", "--temperature", "1"]  # fmt: skip
    killed = subprocess.Popen([sys.executable, "-m", "engine", "compare", *argv], stdout=subprocess.DEVNULL)
    try:
        while not out.exists() or out.read_bytes().count(b"\n") < 7:
            assert killed.poll() is None
            time.sleep(0.005)
    finally:
        killed.kill()
        killed.wait()
    file = ComparisonFile(out)
    file.add_vote(file.pairs()[0], "left")
    before = out.read_bytes()
    ended = run(capsys, *argv)
    assert ended["answers"] + ended["already_there"] == 8
    assert out.read_bytes().startswith(before)
    answers = [json.loads(line) for line in out.read_bytes().splitlines() if b'"kind": "answer"' in line]
    assert len({(one["mode"], one["seed"]) for one in answers}) == len(answers) == 8
    assert len(ComparisonFile(out).votes) == 1


@pytest.mark.parametrize(
    "argv", [["m"], ["m", "--prompt", "a", "--modes", "fast"], ["m", "--prompt", "a", "--seeds", "x"], []]
)
def test_bad_input_is_told_before_a_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str]
) -> None:
    out = tmp_path / "r.jsonl"
    assert cli.main(["compare", *argv, "--out", str(out)]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert not out.exists()


HOSTILE = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1+1", "－1+1", '"=1+1"', "'=1"]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_no_cell_is_a_formula_whatever_separates_cells(tmp_path: Path, separator: str) -> None:
    texts = [before + start for before in ("", "a;", "a\n", "a\r", "a\t", 'a;" ', "a,") for start in HOSTILE]
    made = [answer("alpha", prompt=f"={n}", text=text) for n, text in enumerate(texts)]
    written = csv_text(filled(tmp_path / "r.jsonl", *made))
    quoting = csv.QUOTE_MINIMAL if separator == "," else csv.QUOTE_NONE  # inside of a cell, quotes are text
    lines = written.splitlines(keepends=True) if separator == "," else written.splitlines()
    cells = [cell.lstrip(' "\t\r') for row in csv.reader(lines, delimiter=separator, quoting=quoting) for cell in row]
    assert len(cells) > len(texts)
    assert not [cell for cell in cells if cell.startswith(tuple("=+-@＝＋－＠"))]


@pytest.mark.parametrize("value", [-1.5, 3, None, "-3", "+4,5", "-1.5e-9", "plain; text", "a - b", "x=1", "2+2", ""])
def test_numbers_and_plain_text_stay_as_they_are(value: object) -> None:
    assert inert(value) == value
    assert ";'=1" in str(inert({"stop": ["a;=1"]}))
