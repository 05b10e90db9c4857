"""What a person does with models, turned into jobs of the library: find, fetch, prepare, switch to, take away.

It keeps what is known of catalogue, library and downloads, and tells rows of it. The chat's part (which model answers)
is the chat controller's. Knows no widget and reads no file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.engine_process import EngineDied
from app.engine_status import EngineStatus, Phase
from app.model_choices import ModelChoices
from app.model_rows import ModelRow, Preparing, recommended, rows_of
from app.user_messages import UserMessage, describe, describe_library_death
from engine import protocol
from engine.library.records import (
    CatalogueEntry,
    Download,
    Estimate,
    HubModel,
    InstalledModel,
    Listing,
    MachineLine,
    PreparePlan,
    from_json,
)

log = logging.getLogger(__name__)

Values = dict[str, Any]
Done = Callable[[Values], None]
FailedThen = Callable[[protocol.Failed], None]
Told = Callable[[protocol.Progress], None]

TELL_AFTER_MS = 40  # several changes at once are told once


class Library(Protocol):
    """The library's process, as app/library_client.py has it."""

    news: Any  # Signal(str, object): topic and its whole new state
    died: Any  # Signal(object): EngineDied

    def ask(self, job: str, arguments: Values | None = None, done: Done | None = None,
            failed: FailedThen | None = None, progress: Told | None = None) -> str: ...  # fmt: skip

    def cancel(self, request_id: str) -> None: ...


class Chat(Protocol):
    """What of the chat controller is needed here."""

    status_changed: Any  # Signal(EngineStatus)
    model_changed: Any  # Signal(str)

    @property
    def model(self) -> str: ...

    @property
    def status(self) -> EngineStatus: ...

    def use_model(self, model: str) -> None: ...

    def unload(self) -> None: ...

    def cancel_load(self) -> None: ...

    def load_model(self) -> None: ...


class ModelsController(QObject):
    """Every slot comes back at once; what comes of it is a signal on the main thread."""

    rows_changed = Signal(list)  # list[ModelRow]
    machine_changed = Signal(object)  # MachineLine
    loading_changed = Signal(bool)  # whether catalogue and library are still on their way
    searched = Signal(str, object)  # query, list[HubModel] | UserMessage
    looked = Signal(str, object, object)  # repo, Listing | UserMessage, dict[str, Estimate]
    offer_changed = Signal(object)  # ModelRow | None: the recommended bigger model of a first launch
    previewed = Signal(str, object)  # model id, Estimate
    planned = Signal(str, object)  # row id, PreparePlan | UserMessage
    imported = Signal(object)  # InstalledModel
    relocated = Signal(str)  # the folder where models lie now
    verified = Signal(str, object)  # row id, list of the names of damaged files
    progressed = Signal(str, str, object)  # job (import, relocate, verify), what of, protocol.Progress | None: ended
    token_state = Signal(dict)  # has_token, where, note
    problem = Signal(UserMessage)
    toast = Signal(str, object)  # words, and a callable that undoes it, or None

    def __init__(
        self,
        library: Library,
        chat: Chat,
        choices: ModelChoices | None = None,
        save_choices: Callable[[Values], None] | None = None,
        offer: bool = True,
    ) -> None:
        """save_choices: writes what ModelChoices.to_json gave, in the background. offer: whether one may be made."""
        super().__init__()
        self._library = library
        self._chat = chat
        self.choices = choices or ModelChoices()
        self._save_choices = save_choices or (lambda values: None)
        self._catalogue: list[tuple[CatalogueEntry, Estimate | None]] = []
        self._installed: list[InstalledModel] = []
        self._downloads: list[Download] = []
        self._estimates: dict[str, Estimate] = {}  # by installed id
        self._preparing: Preparing | None = None
        self._prepare_id = ""  # of the request
        self._works: dict[tuple[str, str], str] = {}  # requests by job and what of
        self._awaited: set[str] = set()  # of catalogue, library and downloads: those that are still to come
        self._known: set[str] = set()  # those that came at least once
        self._preview_running = ""
        self._preview_next: tuple[str, float | None, int | None] | None = None
        self._query: tuple[str, str] = ("", "")
        self._searching = ""  # the request
        self._looking: dict[str, str] = {}
        self._may_offer = offer
        self._offer: ModelRow | None = None
        self.rows: list[ModelRow] = []
        self.machine: MachineLine | None = None
        self._soon = QTimer(self, singleShot=True, interval=TELL_AFTER_MS)
        self._soon.timeout.connect(self._tell_rows)
        library.news.connect(self._hear)
        library.died.connect(self._died)
        chat.status_changed.connect(self._chat_changed)
        chat.model_changed.connect(self._chat_changed)
        self._chat_seen: tuple[str, str] = ("", "")

    # -------------------------------------------------------------- what there is

    @Slot()
    def open_page(self) -> None:
        """The page became visible: asks for what is not known yet, and for what may have changed meanwhile."""
        self.refresh()

    @Slot()
    def refresh(self) -> None:
        """Ask for catalogue, library and downloads again."""
        for job, take in (("library", self._take_library), ("downloads", self._take_downloads),
                          ("catalogue", self._take_catalogue)):  # fmt: skip
            if job not in self._awaited:
                self._awaited.add(job)
                self._library.ask(job, {}, partial(self._came, job, take), partial(self._missed, job))
        self._tell_loading()

    def row(self, row_id: str) -> ModelRow | None:
        """The row of that id; an installed model's or a download's id does as well."""
        for row in self.rows:
            if row.id == row_id:
                return row
        for row in self.rows:
            if (row.installed and row.installed.id == row_id) or (row.download and row.download.id == row_id):
                return row
        return None

    def installed(self) -> list[InstalledModel]:
        return list(self._installed)

    @property
    def offer(self) -> ModelRow | None:
        return self._offer

    @property
    def is_loading(self) -> bool:
        """Whether something of the page is on its way that never came before."""
        return bool(self._awaited - self._known)

    @Slot()
    def dismiss_offer(self) -> None:
        """The person does not want the offered model; no other one is offered."""
        self._may_offer = False
        self._tell_offer()

    # -------------------------------------------------------------- downloads

    @Slot(str)
    def download(self, row_id: str) -> None:
        """Fetch a model of the catalogue."""
        row = self.row(row_id)
        if row is not None and row.entry is not None:
            self._ask("download", {"catalogue_id": row.entry.id}, self._take_download, row.name)

    @Slot(str, str)
    def download_variant(self, repo: str, variant_name: str) -> None:
        """Fetch one variant of a repository that was looked into."""
        self._ask("download", {"repo": repo, "variant": variant_name}, self._take_download, repo)

    @Slot(str)
    def pause(self, download_id: str) -> None:
        self._ask("pause", {"download": download_id}, None, self._download_name(download_id))

    @Slot(str)
    def resume(self, download_id: str) -> None:
        """Go on with a paused download, or try a failed one again."""
        self._ask("resume", {"download": download_id}, None, self._download_name(download_id))

    @Slot(str)
    def cancel_download(self, download_id: str) -> None:
        """End a download and take away what came of it."""
        self._ask("cancel_download", {"download": download_id}, None, self._download_name(download_id))

    @Slot(str)
    def forget_download(self, download_id: str) -> None:
        """Take an ended download off the list."""
        self._ask("forget_download", {"download": download_id}, None, self._download_name(download_id))

    # -------------------------------------------------------------- which model answers

    @Slot(str)
    def use(self, row_id: str) -> None:
        """Switch to an installed model; the chat goes on with it."""
        row = self.row(row_id)
        if row is not None and row.installed is not None:
            self._chat.use_model(row.installed.id)

    @Slot()
    def unload(self) -> None:
        self._chat.unload()

    @Slot()
    def cancel_load(self) -> None:
        self._chat.cancel_load()

    # -------------------------------------------------------------- the library

    @Slot(str)
    def remove(self, row_id: str) -> None:
        """Take an owned model away; a toast offers to undo it. The model that is loaded is unloaded first."""
        row = self.row(row_id)
        if row is None or row.installed is None:
            return
        model = row.installed
        if row.in_use or row.loading:
            self._chat.unload()
        self._ask("remove", {"model": model.id}, partial(self._removed, model), model.name)

    @Slot(str, bool)
    def import_path(self, path: str, copy: bool) -> None:
        """Take in a GGUF file or a model folder where it lies, or a copy of it."""
        self._work("import", path, {"path": path, "copy": copy}, partial(self._imported, path))

    @Slot(str)
    def relocate(self, folder: str) -> None:
        """Move all models that are Hearth's to another folder."""
        self._work("relocate", folder, {"folder": folder}, self._relocated)

    @Slot(str)
    def verify(self, row_id: str) -> None:
        """Read a model's files again and compare them with what the hub said of them."""
        row = self.row(row_id)
        if row is not None and row.installed is not None:
            self._work("verify", row.installed.id, {"model": row.installed.id}, partial(self._verified, row_id))

    @Slot(str)
    def repair(self, row_id: str) -> None:
        """Fetch the damaged files of a model again, and only those."""
        row = self.row(row_id)
        if row is not None and row.installed is not None:
            self._ask("repair", {"model": row.installed.id}, self._take_download, row.name)

    @Slot(str, str)
    def cancel_work(self, job: str, what: str) -> None:
        """Stop an import, a move or a check."""
        if request := self._works.get((job, what)):
            self._library.cancel(request)

    # -------------------------------------------------------------- preparing

    @Slot(str)
    def plan(self, row_id: str) -> None:
        """Ask what preparing a model would do and gain."""
        row = self.row(row_id)
        if row is not None and row.installed is not None:
            self._library.ask("prepare_plan", {"model": row.installed.id}, partial(self._planned, row_id),
                              partial(self._not_planned, row_id, row.name))  # fmt: skip

    @Slot(str, str)
    def prepare(self, row_id: str, predictors: str = "train") -> None:
        """Prepare a model for this PC; one at a time. predictors: "train", or "sign" and train later."""
        row = self.row(row_id)
        if row is None or row.installed is None:
            return
        if self._preparing is not None:
            self.toast.emit("Another model is being prepared: stop that first, or wait", None)
            return
        model = row.installed
        self._preparing = Preparing(model.id)
        self._choose(model.id, predictors=predictors)
        self._prepare_id = self._library.ask(
            "prepare", {"model": model.id, "predictors": predictors}, partial(self._prepared, model),
            partial(self._not_prepared, model), partial(self._prepares, model),
        )  # fmt: skip
        self._tell_rows()

    @Slot()
    def cancel_prepare(self) -> None:
        """Stop; what is done of it is kept, and the next try goes on there."""
        if self._prepare_id:
            self._library.cancel(self._prepare_id)

    # -------------------------------------------------------------- the hub

    @Slot(str, str)
    def search(self, query: str, sort: str = "downloads") -> None:
        """Search the hub; only the newest search is answered. An empty query ends the search."""
        query = query.strip()
        self._query = (query, sort)
        if self._searching:
            self._library.cancel(self._searching)
            self._searching = ""
        if query:
            self._searching = self._library.ask("search", {"query": query, "sort": sort},
                                                partial(self._found, self._query),
                                                partial(self._not_found, self._query))  # fmt: skip

    @Slot(str)
    def look(self, repo: str) -> None:
        """See what a repository offers; an id or the address of its page."""
        repo = repo.strip()
        if repo and repo not in self._looking:
            self._looking[repo] = self._library.ask(
                "look", {"repo": repo}, partial(self._looked, repo), partial(self._not_looked, repo)
            )

    @Slot(str)
    def set_token(self, token: str) -> None:
        """Keep an access token where the system keeps such things; an empty one takes it away."""
        self._ask("token", {"set": token}, self.token_state.emit, "")

    @Slot()
    def ask_token(self) -> None:
        self._ask("token", {}, self.token_state.emit, "")

    # -------------------------------------------------------------- the share of the card

    def preview(self, model_id: str, vram_budget_gib: float | None, context: int | None = None) -> None:
        """Ask how a model would lie with another budget. While one is being reckoned only the newest wish waits."""
        self._preview_next = (model_id, vram_budget_gib, context)
        if not self._preview_running:
            self._preview_on()

    def set_budget(self, model_id: str, vram_budget_gib: float | None) -> None:
        """Give a model so much of the card's memory from now on; None: automatic. Loads it again if it is loaded."""
        if self._choose(model_id, vram_budget_gib=vram_budget_gib):
            self._load_again(model_id)

    def set_context(self, model_id: str, context: int | None) -> None:
        """Give a model a context of so many tokens from now on; None: automatic."""
        if self._choose(model_id, context=context):
            self._load_again(model_id)

    def _load_again(self, model_id: str) -> None:
        if self._chat.model == model_id and self._chat.status.phase is not Phase.OFF:
            self._chat.load_model()

    def _choose(self, model_id: str, **values: Any) -> bool:
        changed = self.choices.change(model_id, **values)
        if changed:
            self._save_choices(self.choices.to_json())
        return changed

    def _preview_on(self) -> None:
        if self._preview_next is None:
            return
        (model, budget, context), self._preview_next = self._preview_next, None
        wish = {"model": model, "vram_budget_gib": budget, "context": context}
        self._preview_running = self._library.ask(
            "estimate", {key: value for key, value in wish.items() if value is not None},
            partial(self._previewed, model), self._not_previewed,
        )  # fmt: skip

    def _previewed(self, model: str, values: Values) -> None:
        self._preview_running = ""
        if self._preview_next is None or self._preview_next[0] == model:
            self.previewed.emit(model, from_json(Estimate, values, "estimate"))
        self._preview_on()

    def _not_previewed(self, failed: protocol.Failed) -> None:
        log.info("no estimate: %s", failed.message)
        self._preview_running = ""
        self._preview_on()

    # -------------------------------------------------------------- what comes

    def _ask(self, job: str, arguments: Values, done: Done | None, name: str) -> str:
        """A job whose failure is told as a problem. name: of the model, as the person knows it."""
        return self._library.ask(
            job, arguments, done, lambda failed: self.problem.emit(describe(failed, during=job, model=name))
        )

    def _work(self, job: str, what: str, arguments: Values, done: Done) -> None:
        """A longer job with progress, one for each thing it can be done with."""
        if (job, what) in self._works:
            return

        def ended() -> None:
            self._works.pop((job, what), None)
            self.progressed.emit(job, what, None)

        def succeeded(values: Values) -> None:
            ended()
            if not values.get("cancelled"):
                done(values)

        def failed(why: protocol.Failed) -> None:
            ended()
            self.problem.emit(describe(why, during=job))

        self._works[job, what] = self._library.ask(
            job, arguments, succeeded, failed, lambda event: self.progressed.emit(job, what, event)
        )

    def _came(self, job: str, take: Done, values: Values) -> None:
        self._awaited.discard(job)
        self._known.add(job)
        take(values)
        self._tell_loading()

    def _missed(self, job: str, failed: protocol.Failed) -> None:
        self._awaited.discard(job)
        self._tell_loading()
        self.problem.emit(describe(failed, during=job))

    @Slot(str, object)
    def _hear(self, topic: str, values: Values) -> None:
        if topic == "downloads":
            self._take_downloads(values)
        elif topic == "library":
            self._take_library(values)

    def _take_catalogue(self, values: Values) -> None:
        self._catalogue = [
            (from_json(CatalogueEntry, known["entry"], "entry"),
             from_json(Estimate, known["estimate"], "estimate") if known.get("estimate") else None)
            for known in values["entries"]
        ]  # fmt: skip
        if values.get("machine"):
            self._take_machine(values["machine"])
        self._soon.start()

    def _take_machine(self, values: Values) -> None:
        self.machine = from_json(MachineLine, values, "machine")
        if self.choices.set_machine(self.machine.key):
            self._save_choices(self.choices.to_json())
        self.machine_changed.emit(self.machine)

    def _take_library(self, values: Values) -> None:
        before = {model.id: model for model in self._installed}
        self._installed = [from_json(InstalledModel, model, "model") for model in values["models"]]
        self._estimates = {
            model.id: self._estimates[model.id]
            for model in self._installed
            if model.id in self._estimates and _lies_the_same(before.get(model.id), model)
        }
        for model in self._installed:
            if model.id not in self._estimates and model.state != "broken":
                self._library.ask("estimate", {"model": model.id, **self.choices.of(model.id).engine()},
                                  partial(self._estimated, model.id), self._not_estimated)  # fmt: skip
        self._soon.start()

    def _estimated(self, model: str, values: Values) -> None:
        self._estimates[model] = from_json(Estimate, values, "estimate")
        self._soon.start()

    def _not_estimated(self, failed: protocol.Failed) -> None:
        log.info("no estimate: %s", failed.message)

    def _take_downloads(self, values: Values) -> None:
        self._downloads = [from_json(Download, download, "download") for download in values["downloads"]]
        self._soon.start()

    def _take_download(self, values: Values) -> None:
        """One that was just added: it shows before the next news of all of them."""
        if values.get("download"):
            new = from_json(Download, values["download"], "download")
            if all(download.id != new.id for download in self._downloads):
                self._downloads.append(new)
            self._tell_rows()

    def _download_name(self, download_id: str) -> str:
        return next((download.name for download in self._downloads if download.id == download_id), "")

    def _removed(self, model: InstalledModel, values: Values) -> None:
        undo = values.get("undo", "")
        self._installed = [other for other in self._installed if other.id != model.id]
        self._tell_rows()
        restore = partial(self._ask, "restore", {"undo": undo}, self._restored, model.name) if undo else None
        self.toast.emit(f"{model.name} deleted" if model.owned else f"{model.name} taken off the list", restore)

    def _restored(self, values: Values) -> None:
        model = from_json(InstalledModel, values["model"], "model")
        if all(other.id != model.id for other in self._installed):
            self._installed.append(model)
        self._tell_rows()

    def _imported(self, path: str, values: Values) -> None:
        self._restored(values)
        model = from_json(InstalledModel, values["model"], "model")
        self.imported.emit(model)
        self.toast.emit(f"{model.name} is on this PC's list now", None)

    def _relocated(self, values: Values) -> None:
        self.relocated.emit(values["folder"])
        self.refresh()

    def _verified(self, row_id: str, values: Values) -> None:
        self.verified.emit(row_id, list(values["damaged"]))

    def _planned(self, row_id: str, values: Values) -> None:
        self.planned.emit(row_id, from_json(PreparePlan, values, "plan"))

    def _not_planned(self, row_id: str, name: str, failed: protocol.Failed) -> None:
        self.planned.emit(row_id, describe(failed, during="prepare_plan", model=name))

    def _prepares(self, model: InstalledModel, event: protocol.Progress) -> None:
        self._preparing = Preparing(model.id, event.stage, event.done, event.total, event.eta_s)
        self._soon.start()

    def _prepared(self, model: InstalledModel, values: Values) -> None:
        self._preparing, self._prepare_id = None, ""
        self._estimates.pop(model.id, None)
        if values.get("cancelled"):
            self._tell_rows()
            return
        self._restored(values)
        self.refresh()
        self.toast.emit(f"{model.name} is prepared for this PC", None)
        if self._chat.model == model.id and self._chat.status.phase is not Phase.OFF:
            self._chat.load_model()  # so that it answers as it was prepared to

    def _not_prepared(self, model: InstalledModel, failed: protocol.Failed) -> None:
        self._preparing, self._prepare_id = None, ""
        self._tell_rows()
        self.problem.emit(describe(failed, during="prepare", model=model.name))

    def _found(self, query: tuple[str, str], values: Values) -> None:
        if query == self._query:
            self._searching = ""
            self.searched.emit(query[0], [from_json(HubModel, model, "model") for model in values["models"]])

    def _not_found(self, query: tuple[str, str], failed: protocol.Failed) -> None:
        if query == self._query:
            self._searching = ""
            self.searched.emit(query[0], describe(failed, during="search"))

    def _looked(self, repo: str, values: Values) -> None:
        self._looking.pop(repo, None)
        listing = from_json(Listing, values["listing"], "listing")
        known = values.get("estimates", {})
        self.looked.emit(repo, listing, {name: from_json(Estimate, known[name], "estimate") for name in known})

    def _not_looked(self, repo: str, failed: protocol.Failed) -> None:
        self._looking.pop(repo, None)
        self.looked.emit(repo, describe(failed, during="look", model=repo), {})

    @Slot(object)
    def _died(self, died: EngineDied) -> None:
        """The library's process ended. It starts again by itself, and what can be asked again is; only an end for
        good is worth a word."""
        if not died.restarting:
            self.problem.emit(describe_library_death(died.reason, died.details))

    @Slot()
    def _chat_changed(self, *_: object) -> None:
        if self._chat_seen != self._of_the_chat():
            self._tell_rows()

    # -------------------------------------------------------------- telling

    def _of_the_chat(self) -> tuple[str, str]:
        """The model in use, and the one on its way; each may be empty."""
        match self._chat.status.phase:
            case Phase.STARTING | Phase.LOADING | Phase.RESTARTING:
                return "", self._chat.model
            case Phase.OFF | Phase.FAILED:
                return "", ""
        return self._chat.model, ""

    @Slot()
    def _tell_rows(self) -> None:
        self._soon.stop()
        self._chat_seen = in_use, loading = self._of_the_chat()
        rows = rows_of(self._catalogue, self._installed, self._downloads, self._preparing, in_use, loading,
                       self._estimates)  # fmt: skip
        if rows != self.rows:
            self.rows = rows
            self.rows_changed.emit(rows)
        self._tell_offer()

    def _tell_loading(self) -> None:
        self.loading_changed.emit(self.is_loading)

    def _tell_offer(self) -> None:
        offer = None
        if self._may_offer and {"catalogue", "library", "downloads"} <= self._known:
            offer = recommended(self.rows, self.machine.disk_free_bytes if self.machine else None)
        if offer != self._offer:
            self._offer = offer
            self.offer_changed.emit(offer)


def _lies_the_same(before: InstalledModel | None, after: InstalledModel) -> bool:
    """Whether what was reckoned for a model still holds."""
    return before is not None and (before.path, before.prepared, before.n_bytes, before.state) == (
        after.path, after.prepared, after.n_bytes, after.state,
    )  # fmt: skip
