"""The long work that the window asks for beside chatting, as a table: name, arguments, what runs.

A job gets its checked arguments, a maker of progress callbacks (one for each stage), and what says that it was
cancelled; it answers with the same values as its command's JSON. engine/service/host.py runs it; the work is elsewhere.
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
    """needs, takes: the arguments that must and may be there, each with its type. run: does the work."""

    needs: Mapping[str, type]
    takes: Mapping[str, type]
    run: Callable[[Values, StagedJob], Values]


def run_job(name: str, arguments: Mapping[str, Any], job: StagedJob) -> Values:
    """Runs the job of that name. Arguments that are null count as left out.

    Raises: InvalidRequestError for an unknown job or argument, one that is missing or of another type; what the work
    raises, Cancelled among it.
    """
    kind = JOBS.get(name)
    if kind is None:
        raise unknown_job(name, JOBS)
    return kind.run(checked_arguments(name, kind.needs, kind.takes, arguments), job)


def unknown_job(name: str, known: Mapping[str, object]) -> InvalidRequestError:
    return InvalidRequestError(f"There is no job called {name!r}; known are {', '.join(known)}.", "Update Hearth.")


def checked_arguments(
    name: str, needs: Mapping[str, type], takes: Mapping[str, type], arguments: Mapping[str, Any]
) -> Values:
    """The arguments of a job without those that are null; a whole number does for a number.

    Raises: InvalidRequestError for one that is unknown, missing or of another type.
    """
    given = {key: value for key, value in arguments.items() if value is not None}
    known = {**needs, **takes}
    if unknown := sorted(set(given) - set(known)):
        raise InvalidRequestError(f"The job {name} has no argument {unknown[0]!r}; known are {', '.join(known)}.")
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
    from engine.opening import find_model

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
    from engine.loaded_model import LoadedModel
    from engine.measure.evaluate import read_text
    from engine.opening import open_named
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
    from engine.loaded_model import LoadedModel
    from engine.measure.evaluate import read_text
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
    from engine.opening import open_named
    from engine.placement.solving import solve_model

    engine = EngineConfig.from_dict(given.get("engine", {}))
    opened = open_named(given["model"], engine.activation)
    return solve_model(opened, engine, job.at("solving"), again=given.get("again", False)).to_json()


JOBS: dict[str, JobKind] = {
    "convert": JobKind({"source": str, "bundle": str, "codec": str}, {"activation": str}, _convert),
    "profile": JobKind({"model": str}, {"text": str, "tokens": int, "plot": str, "engine": dict}, _profile),
    "train": JobKind({"model": str}, {"text": str, "tokens": int, "kind": str, "engine": dict}, _train),
    "solve": JobKind({"model": str}, {"engine": dict, "again": bool}, _solve),
}
