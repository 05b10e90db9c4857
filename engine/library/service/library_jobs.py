"""The library's jobs as a table: name, arguments, queue, function.

Arguments and results are JSON values; their records are in engine/library/records.py. host.py assigns threads; the
other files of this folder do the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import platformdirs

from engine.errors import DeviceMemoryError, InvalidRequestError, ModelFormatError, UnsupportedModelError
from engine.job import CancelCheck, StagedJob
from engine.library.records import to_json
from engine.library.service.server_jobs import own_key, server_chat, server_key, server_models
from engine.library.service.services import UNDO_S, Services

if TYPE_CHECKING:
    from engine.library.estimate.machines import KnownMachine
    from engine.library.records import Estimate, Listing, ModelShape, Variant

Values = dict[str, Any]
# quick: waits for nothing; hub: may wait for a network, or for a user to unlock a keyring; files: reads and writes
# whole models; servers: requests to servers, however long they take; prepare: one at a time.
QueueName = Literal["quick", "hub", "files", "servers", "prepare"]


@dataclass(frozen=True)
class LibraryContext(StagedJob):
    """The callbacks of a job. report: stage, done, total, seconds left. say: text of an answer so far, and its number
    of chunks.
    """

    report: Callable[[str, int, int, float | None], None] = lambda stage, done, total, eta_s: None
    say: Callable[[str, int], None] = lambda text, chunks: None


@dataclass(frozen=True)
class LibraryJob:
    """needs, takes: required and optional arguments with their types."""

    queue_name: QueueName
    run: Callable[[Services, Values, LibraryContext], Values]
    needs: Mapping[str, type] = field(default_factory=dict)
    takes: Mapping[str, type] = field(default_factory=dict)


# --- this PC, and what it could run


def _machine(services: Services, given: Values, job: LibraryContext) -> Values:
    return to_json(_this_pc(services, given).line(services.library.folder))


def _this_pc(services: Services, given: Values) -> KnownMachine:
    return services.machine(given.get("own_vram_bytes", 0), given.get("engine_pid", 0))


def _catalogue(services: Services, given: Values, job: LibraryContext) -> Values:
    machine, budget = _this_pc(services, given), given.get("vram_budget_gib")
    estimated = services.estimates.all(machine, budget, given.get("context"))
    return {
        "machine": to_json(machine.line(services.library.folder, budget)),
        "entries": [{"entry": to_json(one.entry), "estimate": to_json(one.estimate)} for one in estimated],
    }


def _estimate(services: Services, given: Values, job: LibraryContext) -> Values:
    model, budget, context = given["model"], given.get("vram_budget_gib"), given.get("context")
    machine = _this_pc(services, given)
    entry = services.catalogue.find(model)
    if entry is not None:
        return to_json(services.estimates.one(entry, machine, budget, context))
    installed = services.library.find(model)
    if installed is None:
        return to_json(services.previews.preview(Path(model), machine, budget, context))
    return to_json(services.previews.preview(installed.path, machine, budget, context, activation=installed.activation))


# --- the hub


def _search(services: Services, given: Values, job: LibraryContext) -> Values:
    found = services.hub.search(given["query"], given.get("sort", "downloads"), given.get("limit", 30))
    return {"models": [to_json(model) for model in found]}


def _look(services: Services, given: Values, job: LibraryContext) -> Values:
    listing, estimates = _estimated(services, services.hub.listing(given["repo"]), job.cancelled)
    return {"listing": to_json(listing), "estimates": {name: to_json(found) for name, found in estimates.items()}}


def _estimated(services: Services, listing: Listing, cancelled: CancelCheck) -> tuple[Listing, dict[str, Estimate]]:
    """Return the listing, with the reason at variants that Hearth does not run, and estimates of the others."""
    from engine.library.estimate.estimates import estimate_shape

    machine = services.machine()
    readable = [variant for variant in listing.variants if not variant.refused]
    reasons: dict[str, str] = {}
    found: dict[str, Estimate] = {}
    for kind in sorted({variant.format for variant in readable}):
        variants = [variant for variant in readable if variant.format == kind]
        shape, refused = _shape_of(services, listing, variants, cancelled)
        reasons |= refused
        if shape is None:
            continue
        for variant in variants:
            codec = variant.codec or ("f16" if kind == "safetensors" else "")
            if variant.name not in refused:
                with suppress(ModelFormatError, UnsupportedModelError, DeviceMemoryError):
                    found[variant.name] = estimate_shape(
                        shape[0], codec, kind, machine, n_bytes=variant.n_bytes, n_draft_layers=shape[1]
                    )
    checked = (replace(one, refused=one.refused or reasons.get(one.name, "")) for one in listing.variants)
    return replace(listing, variants=tuple(checked)), found


def _shape_of(
    services: Services, listing: Listing, variants: list[Variant], cancelled: CancelCheck
) -> tuple[tuple[ModelShape, int] | None, dict[str, str]]:
    """Return the shape and draft layers of the variants of a format, and by name why Hearth does not run a variant.

    The variants are one model in several codecs, so the smallest one's header has the shape of all; None if it cannot
    be read. Small files of other kinds may stand beside them, so it takes two equal refusals to refuse all unread.
    """
    from engine.library.hub.remote_shape import shape_on_hub

    refused: dict[str, str] = {}
    for variant in sorted(variants, key=_n_bytes):
        try:
            return shape_on_hub(services.hub, listing, variant, cancelled), refused
        except UnsupportedModelError as error:
            if error.message in refused.values():
                return None, {one.name: error.message for one in variants} | refused
            refused[variant.name] = error.message
        except (ModelFormatError, DeviceMemoryError):
            break
    return None, refused


def _n_bytes(variant: Variant) -> int:
    return variant.n_bytes


def _token(services: Services, given: Values, job: LibraryContext) -> Values:
    if "set" in given:
        return services.credentials.set(given["set"], given.get("allow_file", False))
    return services.credentials.state()


# --- downloads


def _downloads(services: Services, given: Values, job: LibraryContext) -> Values:
    return services.news("downloads")


def _download(services: Services, given: Values, job: LibraryContext) -> Values:
    if "catalogue_id" in given:
        entry = services.catalogue.get(given["catalogue_id"])
        return {"download": to_json(services.downloads.add(entry))}
    if "repo" not in given:
        raise InvalidRequestError("The job download lacks its argument 'catalogue_id', or 'repo'.")
    from engine.library.hub.hub_names import parse_repository

    repo, revision = parse_repository(given["repo"], services.hub.endpoint)
    known = None if revision else services.catalogue.of_repository(repo, given.get("variant", ""))
    if known is not None:
        return {"download": to_json(services.downloads.add(known))}
    queued = services.downloads.add_variant(given["repo"], given.get("variant", ""), n_bytes=given.get("n_bytes", 0))
    return {"download": to_json(queued)}


def _pause(services: Services, given: Values, job: LibraryContext) -> Values:
    services.downloads.pause(given["download"])
    return {}


def _resume(services: Services, given: Values, job: LibraryContext) -> Values:
    services.downloads.resume(given["download"])
    return {}


def _cancel_download(services: Services, given: Values, job: LibraryContext) -> Values:
    services.downloads.cancel(given["download"])
    return {}


def _remove_download(services: Services, given: Values, job: LibraryContext) -> Values:
    services.downloads.remove(given["download"])
    return {}


# --- what is owned


def _library(services: Services, given: Values, job: LibraryContext) -> Values:
    return services.news("library")


def _import(services: Services, given: Values, job: LibraryContext) -> Values:
    model = services.library.add(Path(given["path"]), given.get("copy", False), given.get("name", ""), job)
    services.tell("library")
    return {"model": to_json(model)}


def _remove(services: Services, given: Values, job: LibraryContext) -> Values:
    from engine.library.prepare.preparing import discard

    services.library.purge(UNDO_S)
    undo = services.library.remove(given["model"])
    discard(services.library, given["model"])
    services.tell("library")
    return {"undo": undo}


def _restore(services: Services, given: Values, job: LibraryContext) -> Values:
    model = services.library.restore(given["undo"])
    services.tell("library")
    return {"model": to_json(model)}


def _relocate(services: Services, given: Values, job: LibraryContext) -> Values:
    folder = services.library.relocate(Path(given["folder"]), job.at("moving"))
    services.tell("library")
    return {"folder": str(folder)}


def _verify(services: Services, given: Values, job: LibraryContext) -> Values:
    damaged = services.library.verify(given["model"], job.at("checking"))
    services.tell("library")
    return {"damaged": damaged}


def _repair(services: Services, given: Values, job: LibraryContext) -> Values:
    model = services.library.get(given["model"])
    entry = services.catalogue.find(model.catalogue_id)
    return {"download": to_json(services.downloads.repair(model, tuple(given.get("damaged", ())), entry))}


def _measured(services: Services, given: Values, job: LibraryContext) -> Values:
    services.library.set_measured(given["model"], given["tok_s"])
    services.tell("library")
    return {}


def _updates_folder() -> Path:
    return Path(platformdirs.user_data_dir("Hearth", appauthor=False)) / "updates"


def _update_look(services: Services, given: Values, job: LibraryContext) -> Values:
    """Return the newest release. size: bytes of its file for this PC; 0 if there is none."""
    from engine.library.updates import installed, release

    found = release.look(_updates_folder(), job=job.at("look"))
    file = found.file_for(installed.platform())
    return {"version": found.version, "notes": found.notes, "page": found.page, "size": file.size if file else 0}


def _update_download(services: Services, given: Values, job: LibraryContext) -> Values:
    from engine.library.updates.release import download

    path, file = download(_updates_folder(), given["version"], job=job.at("download"))
    return {"path": str(path), "sha256": file.sha256}


def _update_install(services: Services, given: Values, job: LibraryContext) -> Values:
    from engine.library.updates.installed import install

    install(Path(given["path"]), given["sha256"], job.at("install"))
    return {}


# --- preparing


def _prepare_plan(services: Services, given: Values, job: LibraryContext) -> Values:
    from engine.library.prepare.preparing import plan

    model = given["model"]
    return to_json(plan(services.library, model, sparsity=services.sparsity_of(model)))


def _prepare(services: Services, given: Values, job: LibraryContext) -> Values:
    from engine.library.prepare.preparing import PrepareJob, prepare

    model = given["model"]
    services.training.hold()
    try:
        installed, done = prepare(
            services.library, model, given.get("predictors", "train"), PrepareJob(job.report, job.cancelled),
            sparsity=services.sparsity_of(model),
        )  # fmt: skip
    finally:
        services.training.release()
    services.prepared(installed)
    return {"model": to_json(installed), "plan": to_json(done)}


def _idle(services: Services, given: Values, job: LibraryContext) -> Values:
    """Note whether the user is away, so that postponed training may run."""
    return {"pending": services.training.allow(given["on"])}


# The loaded model's memory becomes available to the next one. engine_pid: the process that holds it.
_OWN: dict[str, type] = {"own_vram_bytes": int, "engine_pid": int}
_BUDGET: dict[str, type] = {"vram_budget_gib": float, "context": int}
_MODEL: dict[str, type] = {"model": str}
_ONE: dict[str, type] = {"download": str}

JOBS: dict[str, LibraryJob] = {
    "machine": LibraryJob("quick", _machine, {}, _OWN),
    "catalogue": LibraryJob("quick", _catalogue, {}, {**_OWN, **_BUDGET}),
    "estimate": LibraryJob("quick", _estimate, _MODEL, {**_OWN, **_BUDGET}),
    "search": LibraryJob("hub", _search, {"query": str}, {"sort": str, "limit": int}),
    "look": LibraryJob("hub", _look, {"repo": str}),
    "library": LibraryJob("quick", _library),
    "downloads": LibraryJob("quick", _downloads),
    "download": LibraryJob("quick", _download, {}, {"catalogue_id": str, "repo": str, "variant": str, "n_bytes": int}),
    "pause": LibraryJob("quick", _pause, _ONE),
    "resume": LibraryJob("quick", _resume, _ONE),
    "cancel_download": LibraryJob("quick", _cancel_download, _ONE),
    "remove_download": LibraryJob("quick", _remove_download, _ONE),
    "import": LibraryJob("files", _import, {"path": str}, {"copy": bool, "name": str}),
    "remove": LibraryJob("quick", _remove, _MODEL),
    "restore": LibraryJob("quick", _restore, {"undo": str}),
    "relocate": LibraryJob("files", _relocate, {"folder": str}),
    "verify": LibraryJob("files", _verify, _MODEL),
    "repair": LibraryJob("quick", _repair, _MODEL, {"damaged": list}),
    "prepare_plan": LibraryJob("quick", _prepare_plan, _MODEL),
    "prepare": LibraryJob("prepare", _prepare, _MODEL, {"predictors": str}),
    "idle": LibraryJob("quick", _idle, {"on": bool}),
    "token": LibraryJob("hub", _token, {}, {"set": str, "allow_file": bool}),
    "measured": LibraryJob("quick", _measured, {"model": str, "tok_s": float}),
    "update_look": LibraryJob("hub", _update_look),
    "update_download": LibraryJob("files", _update_download, {"version": str}),
    "update_install": LibraryJob("files", _update_install, {"path": str, "sha256": str}),
    "server_models": LibraryJob("servers", server_models, {"address": str}, {"name": str, "key": str}),
    "server_chat": LibraryJob(
        "servers",
        server_chat,
        {"address": str, "model": str, "messages": list},
        {"sampling": dict, "name": str, "key": str},
    ),
    "server_key": LibraryJob("hub", server_key, {"address": str, "set": str}),
    "own_key": LibraryJob("hub", own_key, {}, {"set": str}),
}
