"""Jobs of the window: arguments checked against the table, progress, results, cancelling."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from samples.tiny_model import make_tiny_model

from engine.errors import Cancelled, InvalidRequestError
from engine.job import StagedJob
from engine.service import jobs, protocol
from engine.service.host import EngineHost
from engine.service.jobs import JobKind, run_job
from engine.training import training

TEXT = "The ferry left at seven, and half of the passengers slept. " * 20
ENGINE = {"backend": "reference"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("m"), max_context=128)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def run(*requests: protocol.Request, on_event: Any = lambda host, event: None) -> list[Any]:
    events: list[Any] = []

    def emit(event: protocol.Event) -> None:
        events.append(event)
        on_event(host, event)

    host = EngineHost(emit)
    for request in requests:
        host.submit(request)
    host.run_pending()
    return events


def test_profile(model: Path, text: Path, tmp_path: Path) -> None:
    arguments = {"model": str(model), "text": str(text), "tokens": 300, "plot": str(tmp_path / "a.png"),
                 "engine": ENGINE}  # fmt: skip
    *progress, finished = run(protocol.Job("1", "profile", arguments))
    assert isinstance(finished, protocol.Finished)
    assert finished.result["tokens"] == 300
    assert Path(finished.result["file"]).is_file()
    assert Path(finished.result["plot"]).is_file()
    json.dumps(finished.result)
    last = [event for event in progress if event.stage == "profiling"][-1]
    assert (last.done, last.total) == (300, 300)
    assert last.eta_s == 0


def test_train(model: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def train(loaded: Any, words: str, wishes: Any, device: str, job: Any) -> SimpleNamespace:
        asked.extend((loaded.mode, words, wishes.tokens, device, job.cancelled()))
        job.progress(1, 2)
        return SimpleNamespace(values=lambda: {"bytes": 7})

    monkeypatch.setattr(training, "train", train)
    arguments = {"model": str(model), "text": str(text), "tokens": 2000, "engine": {**ENGINE, "device": "cpu"}}
    *progress, finished = run(protocol.Job("1", "train", arguments))
    assert finished.result == {"bytes": 7}
    assert asked == ["exact", text.read_text("utf-8"), 2000, "cpu", False]
    assert [(event.done, event.total) for event in progress if event.stage == "training"] == [(1, 2)]


def test_convert(model: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    *progress, finished = run(
        protocol.Job("1", "convert", {"source": str(model), "bundle": str(bundle), "codec": "f16", "activation": None})
    )
    assert finished.result["bundle"] == str(bundle)
    assert finished.result["bytes"] > 0
    assert {event.stage for event in progress} == {"converting"}
    assert bundle.is_dir()


@pytest.mark.parametrize("job", ["profile", "convert"])
def test_cancelled_while_it_runs(model: Path, text: Path, tmp_path: Path, job: str) -> None:
    arguments = {"model": str(model), "text": str(text), "engine": ENGINE}
    if job == "convert":
        arguments = {"source": str(model), "bundle": str(tmp_path / "bundle"), "codec": "f16"}

    def stop(host: EngineHost, event: protocol.Event) -> None:
        if isinstance(event, protocol.Progress):
            host.submit(protocol.Cancel("c", "1"))

    events = run(protocol.Job("1", job, arguments), on_event=stop)
    assert [event for event in events if event.id == "1"][-1] == protocol.Finished("1", {"cancelled": True})
    assert not (tmp_path / "bundle").exists()


def test_what_is_wrong_with_a_job_is_told(model: Path) -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("fly", {}, "no job called 'fly'; supported: convert, profile, train, solve"),
        ("profile", {}, "lacks its argument 'model'"),
        ("profile", {"model": "x", "colour": 1}, "no argument 'colour'"),
        ("profile", {"model": 7}, "is 7, not a text"),
        ("profile", {"model": str(model), "tokens": True}, "is True, not a whole number"),
        ("profile", {"model": str(model), "engine": {"mode": "fast"}}, "Unknown mode"),
        ("profile", {"model": "no-such-model"}, "no file, folder or installed model"),
        ("profile", {"model": str(model), "plot": "a.pdf"}, r".png and .svg"),
        ("convert", {"source": str(model), "bundle": "x", "codec": "q9"}, "Unknown codec"),
    ]
    for name, arguments, words in wrong:
        (event,) = run(protocol.Job("1", name, arguments))
        assert isinstance(event, protocol.Failed), name
        assert not event.crash
        assert words in event.message
        assert event.hint


def test_a_job_is_one_line_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(given: jobs.Values, job: StagedJob) -> jobs.Values:
        if job.cancelled():
            raise Cancelled
        job.stage("counting")(1, 1)
        return given

    monkeypatch.setitem(jobs.JOBS, "count", JobKind({"to": int}, {"loudly": bool}, work))
    seen: list[Any] = []
    assert run_job("count", {"to": 3, "loudly": None}, StagedJob(
        stage=lambda name: lambda *step: seen.append((name, *step))
    )) == {"to": 3}  # fmt: skip
    assert seen == [("counting", 1, 1)]
    with pytest.raises(Cancelled):
        run_job("count", {"to": 3}, StagedJob(lambda: True))
    with pytest.raises(InvalidRequestError, match="true or false"):
        run_job("count", {"to": 3, "loudly": 1}, StagedJob())
