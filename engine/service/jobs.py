"""The window's long jobs besides chatting, as a table: name, arguments, function.

A job receives checked arguments and a StagedJob, and returns the values of its command's JSON. engine/service/host.py
runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import InvalidRequestError
from engine.job import StagedJob

Values = dict[str, Any]

_WORDS: dict[type, str] = {
    str: "a text", int: "a whole number", float: "a number", dict: "an object", bool: "true or false", list: "a list",
}  # fmt: skip


@dataclass(frozen=True)
class JobKind:
    """needs, takes: required and optional arguments with their types. run: does the work."""

    needs: Mapping[str, type]
    takes: Mapping[str, type]
    run: Callable[[Values, StagedJob], Values]


def run_job(name: str, arguments: Mapping[str, Any], job: StagedJob) -> Values:
    """Run the job of that name. Null arguments count as missing.

    Raises: InvalidRequestError for an unknown job, or an unknown, missing or mistyped argument; the job's errors,
    Cancelled included.
    """
    kind = JOBS.get(name)
    if kind is None:
        raise unknown_job(name, JOBS)
    return kind.run(checked_arguments(name, kind.needs, kind.takes, arguments), job)


def unknown_job(name: str, known: Mapping[str, object]) -> InvalidRequestError:
    return InvalidRequestError(f"There is no job called {name!r}; supported: {', '.join(known)}.", "Update Hearth.")


def checked_arguments(
    name: str, needs: Mapping[str, type], takes: Mapping[str, type], arguments: Mapping[str, Any]
) -> Values:
    """Return a job's arguments without null ones; integers are accepted as numbers.

    Raises: InvalidRequestError for an unknown, missing or mistyped argument.
    """
    given = {key: value for key, value in arguments.items() if value is not None}
    known = {**needs, **takes}
    if unknown := sorted(set(given) - set(known)):
        raise InvalidRequestError(f"The job {name} has no argument {unknown[0]!r}; supported: {', '.join(known)}.")
    if missing := sorted(set(needs) - set(given)):
        raise InvalidRequestError(f"The job {name} lacks its argument {missing[0]!r}.")
    for key, value in given.items():
        if known[key] is float and type(value) is int:
            given[key] = float(value)
        elif type(value) is not known[key]:
            raise InvalidRequestError(f"The argument {key!r} of the job {name} is {value!r}, not {_WORDS[known[key]]}.")
    return given


def _convert(given: Values, job: StagedJob) -> Values:
    from engine.conversion.convert import convert
    from engine.session.resolve_model import find_model

    source = find_model(given["source"])
    made = convert(
        source.path,
        Path(given["bundle"]),
        given["codec"],
        job.at("converting"),
        given.get("activation") or source.activation or None,
    )
    return {"bundle": str(made.bundle), "bytes": made.n_bytes, "seconds": made.seconds, "warnings": list(made.warnings)}


def _profile(given: Values, job: StagedJob) -> Values:
    from dataclasses import replace

    from engine.config import EngineConfig
    from engine.evaluation.evaluate import read_text
    from engine.session.loaded_model import LoadedModel
    from engine.session.resolve_model import open_named
    from engine.training import profiler
    from engine.training.plot import check_plot_file, draw_locality

    plot = Path(given["plot"]) if "plot" in given else None
    if plot is not None:
        check_plot_file(plot)
    text = read_text(Path(given["text"])) if "text" in given else None
    wanted = EngineConfig.from_dict(given.get("engine", {}))
    engine = replace(wanted, mode="exact", device="cpu")
    opened = open_named(given["model"], engine.activation)
    profiler.check_zeros(opened)
    found = profiler.published_stats(opened) if text is None and "tokens" not in given else None
    if found is None:
        model = LoadedModel.load(given["model"], engine, job.at("loading"), job.stage("preparing"))
        found = profiler.profile(model, text, given.get("tokens"), device=wanted.device, job=job.at("profiling"))
    if plot is not None:
        draw_locality(found.stats, plot, opened.name)
    return {**found.values(), "plot": None if plot is None else str(plot)}


def _train(given: Values, job: StagedJob) -> Values:
    from dataclasses import replace

    from engine.config import EngineConfig
    from engine.evaluation.evaluate import read_text
    from engine.session.loaded_model import LoadedModel
    from engine.training import training

    text = read_text(Path(given["text"])) if "text" in given else None
    wanted = EngineConfig.from_dict(given.get("engine", {}))
    options = training.TrainingOptions(given.get("kind", "auto"), given.get("tokens", training.DEFAULT_TOKENS))
    device = training.training_device(wanted.device)
    engine = replace(wanted, mode="exact", device="cpu")
    model = LoadedModel.load(given["model"], engine, job.at("loading"), job.stage("preparing"))
    return training.train(model, text, options, device, job.at("training")).values()


def _solve(given: Values, job: StagedJob) -> Values:
    from engine.config import EngineConfig
    from engine.placement.solving import solve_model
    from engine.session.resolve_model import open_named

    engine = EngineConfig.from_dict(given.get("engine", {}))
    opened = open_named(given["model"], engine.activation)
    return solve_model(opened, engine, job.at("solving"), again=given.get("again", False)).to_json()


JOBS: dict[str, JobKind] = {
    "convert": JobKind({"source": str, "bundle": str, "codec": str}, {"activation": str}, _convert),
    "profile": JobKind({"model": str}, {"text": str, "tokens": int, "plot": str, "engine": dict}, _profile),
    "train": JobKind({"model": str}, {"text": str, "tokens": int, "kind": str, "engine": dict}, _train),
    "solve": JobKind({"model": str}, {"engine": dict, "again": bool}, _solve),
}
