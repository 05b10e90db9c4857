"""What a person does with models, turned into jobs of the library: find, fetch, prepare, switch to, take away.

What is known of models is known_models.py's, which model answers the chat controller's. Knows no widget and reads
no file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.clients.engine_process import EngineDied
from app.clients.engine_status import FEWEST_TOKENS, Phase
from app.clients.library_client import Done, Library, Values
from app.library_messages import ModelAction
from app.models.budget_preview import BudgetPreview
from app.models.hub_questions import HubQuestions
from app.models.idle_time import IdleTime
from app.models.known_models import Chat, KnownModels
from app.models.model_choices import ModelChoices
from app.models.model_rows import STARTER, ModelRow, Preparing, listed_id
from app.translation import tr
from app.user_messages import UserMessage, describe, describe_library_death
from engine.library.records import (
    Download,
    InstalledModel,
    MachineLine,
    PreparePlan,
    from_json,
)
from engine.service import protocol

log = logging.getLogger(__name__)

START_AFTER_MS = 1500  # once a model is loaded: the first answer goes first
MEASURED_TOKENS = FEWEST_TOKENS  # a shorter answer says little of the rate
MEASURED_DIFFERS = 0.05


class ModelsController(QObject):
    """Every slot comes back at once; what comes of it is a signal on the main thread."""

    rows_changed = Signal(list)  # list[ModelRow]
    machine_changed = Signal(object)  # MachineLine
    loading_changed = Signal(bool)  # whether catalogue and library are still on their way
    searched = Signal(str, object)  # query, list[HubModel] | UserMessage
    looked = Signal(str, object, object)  # repo, Listing | UserMessage, dict[str, Estimate]
    offer_changed = Signal(object)  # ModelRow | None: the recommended bigger model of a first launch
    offer_dismissed = Signal()
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
        self.known = KnownModels(library, chat, self.choices, offer)
        self.known.rows_changed.connect(self.rows_changed)
        self.known.machine_changed.connect(self.machine_changed)
        self.known.loading_changed.connect(self.loading_changed)
        self.known.offer_changed.connect(self.offer_changed)
        self.known.problem.connect(self.problem)
        self._prepare_id = ""  # of the request
        self._works: dict[tuple[str, str], str] = {}  # requests by job and what of
        self._hub = HubQuestions(library)
        self._hub.searched.connect(self.searched)
        self._hub.looked.connect(self.looked)
        self._preview = BudgetPreview(library, self.known)
        self._preview.previewed.connect(self.previewed)
        self._again: Callable[[], object] | None = None  # does what failed last once more
        self._damaged: dict[str, list[str]] = {}  # names of files, by installed id, as they were verified last
        self._rates: dict[str, float] = {}  # that were measured, by installed id
        library.died.connect(self._died)
        self._opening = QTimer(self, singleShot=True, interval=START_AFTER_MS)
        self._opening.timeout.connect(self.refresh)
        self.idle = IdleTime(chat)
        self.idle.changed.connect(self._idle)

    def start(self) -> None:
        """After the window was painted: what an earlier run left goes on once the engine has come up, and the first
        launch's offer is looked for."""
        self._chat.status_changed.connect(self._engine_came)
        self._engine_came()

    def close(self) -> None:
        """No timer acts any more."""
        self._opening.stop()
        self.idle.close()
        self.known.close()

    def _engine_came(self, *_: object) -> None:
        if self._chat.status.phase in (Phase.READY, Phase.FAILED, Phase.OFF):
            self._chat.status_changed.disconnect(self._engine_came)
            self._opening.start()

    # -------------------------------------------------------------- what there is

    @Slot()
    def open_page(self) -> None:
        """The page became visible: asks for what is not known yet, and for what may have changed meanwhile."""
        self.refresh()

    @Slot()
    def refresh(self) -> None:
        """Ask for catalogue, library and downloads again."""
        self._opening.stop()
        self.known.refresh()

    @property
    def rows(self) -> list[ModelRow]:
        return self.known.rows

    @property
    def machine(self) -> MachineLine | None:
        return self.known.machine

    @property
    def offer(self) -> ModelRow | None:
        return self.known.offer

    @property
    def is_loading(self) -> bool:
        """Whether something of the page is on its way that never came before."""
        return self.known.is_loading

    def row(self, row_id: str) -> ModelRow | None:
        """The row of that id; an installed model's or a download's id does as well."""
        return self.known.row(row_id)

    def installed(self) -> list[InstalledModel]:
        return list(self.known.installed)

    @Slot()
    def dismiss_offer(self) -> None:
        """The person does not want the offered model; no other one is offered, today and later."""
        self.known.refuse_offers()
        self.offer_dismissed.emit()

    @Slot(str)
    def remedy(self, action: str) -> None:
        """Do what a banner's button offers, of those that are no window's business."""
        if action == ModelAction.REFRESH_MODELS:
            again, self._again = self._again, None
            self.refresh()
            if again is not None:
                again()

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
            self._chat.use_model(STARTER if row.installed.origin == "shipped" else row.installed.id)

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
        """Fetch the damaged files of a model again, and only those. Where it was not verified before, all are looked
        at."""
        row = self.row(row_id)
        if row is not None and row.installed is not None:
            damaged = self._damaged.pop(row.installed.id, [])
            given = {"model": row.installed.id, **({"damaged": damaged} if damaged else {})}
            self._ask("repair", given, self._take_download, row.name)

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
        if self._prepare_id:
            self.toast.emit(tr("Another model is being prepared: stop that first, or wait"), None)
            return
        model = row.installed
        self._choose(model.id, predictors=predictors)
        self._prepare_id = self._library.ask(
            "prepare", {"model": model.id, "predictors": predictors}, partial(self._prepared, model),
            partial(self._not_prepared, model, predictors), partial(self._prepares, model),
        )  # fmt: skip
        self.known.set_preparing(Preparing(model.id))

    @Slot()
    def cancel_prepare(self) -> None:
        """Stop; what is done of it is kept, and the next try goes on there."""
        if self._prepare_id:
            self._library.cancel(self._prepare_id)

    # -------------------------------------------------------------- the hub

    @Slot(str, str)
    def search(self, query: str, sort: str = "downloads") -> None:
        """Search the hub; only the newest search is answered. An empty query ends the search."""
        self._hub.search(query, sort)

    @Slot(str)
    def look(self, repo: str) -> None:
        """See what a repository offers; an id or the address of its page."""
        self._hub.look(repo)

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
        self._preview.ask(model_id, vram_budget_gib, context)

    def set_budget(self, model_id: str, vram_budget_gib: float | None) -> None:
        """Give a model so much of the card's memory from now on; None: automatic. Loads it again if it is loaded."""
        if self._choose(model_id, vram_budget_gib=vram_budget_gib):
            self._load_again(model_id)

    def _load_again(self, model_id: str) -> None:
        self.known.forget_estimate(listed_id(model_id))
        if self._uses(model_id):
            self._chat.load_model()

    def _uses(self, model_id: str) -> bool:
        """Whether the chat has that model loaded, or is about to."""
        row = self.known.row(listed_id(model_id))
        return row is not None and (row.in_use or row.loading)

    @Slot(int)
    def set_engine_pid(self, pid: int) -> None:
        """The engine's process, whose memory makes room for the next model."""
        self.known.engine_pid = pid

    @Slot(object)
    def take_rate(self, result: protocol.GenerationResult) -> None:
        """An answer has ended: how fast it was is remembered, if it was long enough to tell."""
        model = self.known.in_use()
        if model is None or result.tokens < MEASURED_TOKENS or not result.decode_tok_s:
            return
        before = self._rates.get(model.id, model.measured_tok_s)
        if before is None or abs(result.decode_tok_s / before - 1) > MEASURED_DIFFERS:
            self._rates[model.id] = result.decode_tok_s
            self._library.ask("measured", {"model": model.id, "tok_s": result.decode_tok_s})

    @Slot(bool)
    def _idle(self, idle: bool) -> None:
        """What was put off until nobody waits may be trained, or has to stop. Nothing is asked where nothing was."""
        if any(self.choices.of(model.id).predictors == "sign" for model in self.known.installed):
            self._library.ask("idle", {"on": idle})

    def _choose(self, model_id: str, **values: Any) -> bool:
        changed = self.choices.change(listed_id(model_id), **values)
        if changed:
            self._save_choices(self.choices.to_json())
        return changed

    # -------------------------------------------------------------- what comes

    def _ask(self, job: str, arguments: Values, done: Done | None, name: str) -> str:
        """A job whose failure is told as a problem. name: of the model, as the person knows it."""

        def failed(why: protocol.Failed) -> None:
            self._again = lambda: self._ask(job, arguments, done, name)
            self.problem.emit(describe(why, during=job, model=name))

        return self._library.ask(job, arguments, done, failed)

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
            self._again = lambda: self._work(job, what, arguments, done)
            self.problem.emit(describe(why, during=job))

        self._works[job, what] = self._library.ask(
            job, arguments, succeeded, failed, lambda event: self.progressed.emit(job, what, event)
        )

    def _take_download(self, values: Values) -> None:
        """One that was just added: it shows before the next news of all of them."""
        if values.get("download"):
            self.known.put_download(from_json(Download, values["download"], "download"))

    def _download_name(self, download_id: str) -> str:
        return next((download.name for download in self.known.downloads if download.id == download_id), "")

    def _removed(self, model: InstalledModel, values: Values) -> None:
        undo = values.get("undo", "")
        self.known.take_away(model.id)
        restore = partial(self._ask, "restore", {"undo": undo}, self._restored, model.name) if undo else None
        self.toast.emit(
            tr("{name} deleted", name=model.name) if model.owned else tr("{name} removed", name=model.name),
            restore,
        )

    def _restored(self, values: Values) -> None:
        if values.get("model"):
            self.known.put(from_json(InstalledModel, values["model"], "model"))
            self.known.forget_estimate(values["model"]["id"])

    def _imported(self, path: str, values: Values) -> None:
        self._restored(values)
        model = from_json(InstalledModel, values["model"], "model")
        self.imported.emit(model)
        self.toast.emit(tr("{name} added", name=model.name), None)

    def _relocated(self, values: Values) -> None:
        self.known.folder = values["folder"]
        self.relocated.emit(values["folder"])
        self.refresh()

    def _verified(self, row_id: str, values: Values) -> None:
        row = self.row(row_id)
        if row is not None and row.installed is not None:
            self._damaged[row.installed.id] = list(values["damaged"])
        self.verified.emit(row_id, list(values["damaged"]))

    def _planned(self, row_id: str, values: Values) -> None:
        self.planned.emit(row_id, from_json(PreparePlan, values, "plan"))

    def _not_planned(self, row_id: str, name: str, failed: protocol.Failed) -> None:
        self.planned.emit(row_id, describe(failed, during="prepare_plan", model=name))

    def _prepares(self, model: InstalledModel, event: protocol.Progress) -> None:
        self.known.set_preparing(Preparing(model.id, event.stage, event.done, event.total, event.eta_s))

    def _prepared(self, model: InstalledModel, values: Values) -> None:
        self._prepare_id = ""
        self.known.set_preparing(None)
        if values.get("cancelled"):
            return
        self._restored(values)
        self.toast.emit(tr("{name} is prepared for this PC", name=model.name), None)
        if self._uses(model.id):
            self._chat.load_model()  # so that it answers as it was prepared to

    def _not_prepared(self, model: InstalledModel, predictors: str, failed: protocol.Failed) -> None:
        self._prepare_id = ""
        self.known.set_preparing(None)
        self._again = partial(self.prepare, model.id, predictors)
        self.problem.emit(describe(failed, during="prepare", model=model.name))

    @Slot(object)
    def _died(self, died: EngineDied) -> None:
        """The library's process ended. It starts again by itself, and what can be asked again is; only an end for
        good is worth a word."""
        if not died.restarting:
            self.problem.emit(describe_library_death(died.reason, died.details))
