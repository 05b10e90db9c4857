"""Turns the user's actions on models into jobs of the library: find, download, prepare, use, remove.

known_models.py knows the models, the chat controller which one answers. Imports no widget and reads no file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.clients.engine_process import EngineDied
from app.clients.engine_status import FEWEST_TOKENS, Phase
from app.clients.library_client import Done, Library, Values
from app.later import Later
from app.library_messages import ModelAction
from app.models.budget_preview import BudgetPreview
from app.models.hub_questions import HubQuestions
from app.models.idle_time import IdleTime
from app.models.known_models import Chat, KnownModels
from app.models.model_choices import ModelChoices
from app.models.model_rows import STARTER, ModelRow, listed_id
from app.models.preparation import Preparation
from app.translation import tr
from app.user_messages import UserMessage, describe, describe_library_death

if TYPE_CHECKING:
    from engine.library import records
    from engine.service import protocol
else:
    records = Later("engine.library.records")

log = logging.getLogger(__name__)

START_AFTER_MS = 1500  # after a model is loaded: the first answer comes first
MEASURED_TOKENS = FEWEST_TOKENS  # a shorter answer says little about the rate
MEASURED_DIFFERS = 0.05


class ModelsController(QObject):
    """All slots return at once; results are signals on the main thread."""

    rows_changed = Signal(list)  # list[ModelRow]
    machine_changed = Signal(object)  # MachineLine
    loading_changed = Signal(bool)  # whether catalogue and library are still loading
    searched = Signal(str, object)  # query, list[HubModel] | UserMessage
    looked = Signal(str, object, object)  # repo, Listing | UserMessage, dict[str, Estimate]
    offer_changed = Signal(object)  # ModelRow | None: the bigger model to offer at the first launch
    offer_dismissed = Signal()
    previewed = Signal(str, object)  # model id, Estimate
    planned = Signal(str, object)  # row id, PreparePlan | UserMessage
    imported = Signal(object)  # InstalledModel
    relocated = Signal(str)  # the new folder of models
    verified = Signal(str, object)  # row id, names of damaged files
    progressed = Signal(
        str, str, object
    )  # job (import, relocate, verify), its subject, protocol.Progress | None: ended
    token_state = Signal(dict)  # has_token, where, note
    problem = Signal(UserMessage)
    toast = Signal(str, object)  # text, and a callable that undoes the action, or None

    def __init__(
        self,
        library: Library,
        chat: Chat,
        choices: ModelChoices | None = None,
        save_choices: Callable[[Values], None] | None = None,
        offer: bool = True,
    ) -> None:
        """save_choices: writes the values of ModelChoices.to_json in the background. offer: whether a model may be
        offered."""
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
        self._works: dict[tuple[str, str], str] = {}  # requests by job and subject
        self._hub = HubQuestions(library)
        self._hub.searched.connect(self.searched)
        self._hub.looked.connect(self.looked)
        self._preparation = Preparation(library, self.known)
        self._preparation.planned.connect(self.planned)
        self._preparation.said.connect(self.toast)
        self._preparation.prepared.connect(self._prepared)
        self._preparation.failed.connect(self._not_prepared)
        self._preview = BudgetPreview(library, self.known)
        self._preview.previewed.connect(self.previewed)
        self._again: Callable[[], object] | None = None  # repeats what failed last
        self._damaged: dict[str, list[str]] = {}  # file names by installed id, from the last check
        self._rates: dict[str, float] = {}  # measured, by installed id
        library.died.connect(self._died)
        self._opening = QTimer(self, singleShot=True, interval=START_AFTER_MS)
        self._opening.timeout.connect(self.refresh)
        self.idle = IdleTime(chat)
        self.idle.changed.connect(self._idle)

    def start(self) -> None:
        """Continue interrupted work once the engine is up, and look for a model to offer at the first launch. Call it
        after the first paint."""
        self._chat.status_changed.connect(self._engine_came)
        self._engine_came()

    def close(self) -> None:
        """Stop all timers."""
        self._opening.stop()
        self.idle.close()
        self.known.close()

    def _engine_came(self, *_: object) -> None:
        if self._chat.status.phase in (Phase.READY, Phase.FAILED, Phase.OFF):
            self._chat.status_changed.disconnect(self._engine_came)
            self._opening.start()

    # --- contents

    @Slot()
    def open_page(self) -> None:
        """Load what is unknown or may have changed: the page became visible."""
        self.refresh()

    @Slot()
    def refresh(self) -> None:
        """Request catalogue, library and downloads again."""
        self._opening.stop()
        self.known.refresh()

    @property
    def rows(self) -> list[ModelRow]:
        return self.known.rows

    @property
    def machine(self) -> records.MachineLine | None:
        return self.known.machine

    @property
    def offer(self) -> ModelRow | None:
        return self.known.offer

    def recommended(self, offered: str = "") -> ModelRow | None:
        """Return the larger model to offer, as KnownModels.recommended."""
        return self.known.recommended(offered)

    @property
    def is_loading(self) -> bool:
        """Whether something on the page is loading for the first time."""
        return self.known.is_loading

    def row(self, row_id: str) -> ModelRow | None:
        """Return the row with this id, or of the installed model or download with it."""
        return self.known.row(row_id)

    def installed(self) -> list[records.InstalledModel]:
        return list(self.known.installed)

    @Slot()
    def dismiss_offer(self) -> None:
        """Stop offering models, now and later."""
        self.known.refuse_offers()
        self.offer_dismissed.emit()

    @Slot(str)
    def remedy(self, action: str) -> None:
        """Do what a banner's button offers, unless the window handles it."""
        if action == ModelAction.REFRESH_MODELS:
            again, self._again = self._again, None
            self.refresh()
            if again is not None:
                again()

    # --- downloads

    @Slot(str)
    def download(self, row_id: str) -> None:
        """Download a model of the catalogue."""
        row = self.row(row_id)
        if row is not None and row.entry is not None:
            self._ask("download", {"catalogue_id": row.entry.id}, self._take_download, row.name)

    @Slot(str, str)
    def download_variant(self, repo: str, variant_name: str) -> None:
        self._ask("download", {"repo": repo, "variant": variant_name}, self._take_download, repo)

    @Slot(str)
    def pause(self, download_id: str) -> None:
        self._ask("pause", {"download": download_id}, None, self._download_name(download_id))

    @Slot(str)
    def resume(self, download_id: str) -> None:
        """Continue a paused download, or retry a failed one."""
        self._ask("resume", {"download": download_id}, None, self._download_name(download_id))

    @Slot(str)
    def cancel_download(self, download_id: str) -> None:
        """Cancel a download and delete its files."""
        self._ask("cancel_download", {"download": download_id}, None, self._download_name(download_id))

    @Slot(str)
    def remove_download(self, download_id: str) -> None:
        """Remove an ended download from the list."""
        self._ask("remove_download", {"download": download_id}, None, self._download_name(download_id))

    # --- which model answers

    @Slot(str)
    def use(self, row_id: str) -> None:
        """Switch the chats to an installed model."""
        row = self.row(row_id)
        if row is not None and row.installed is not None:
            self._chat.use_model(STARTER if row.installed.origin == "shipped" else row.installed.id)

    @Slot()
    def unload(self) -> None:
        self._chat.unload()

    @Slot()
    def cancel_load(self) -> None:
        self._chat.cancel_load()

    # --- the library

    @Slot(str)
    def remove(self, row_id: str) -> None:
        """Remove a model; a toast offers undo. A loaded model is unloaded first."""
        row = self.row(row_id)
        if row is None or row.installed is None:
            return
        model = row.installed
        if row.in_use or row.loading:
            self._chat.unload()
        self._ask("remove", {"model": model.id}, partial(self._removed, model), model.name)

    @Slot(str, bool)
    def import_path(self, path: str, copy: bool) -> None:
        """Import a GGUF file or a model folder, in place or as a copy."""
        self._work("import", path, {"path": path, "copy": copy}, partial(self._imported, path))

    @Slot(str)
    def relocate(self, folder: str) -> None:
        """Move all of Hearth's models to another folder."""
        self._work("relocate", folder, {"folder": folder}, self._relocated)

    @Slot(str)
    def verify(self, row_id: str) -> None:
        """Read a model's files again and compare them with the hub's checksums."""
        row = self.row(row_id)
        if row is not None and row.installed is not None:
            self._work("verify", row.installed.id, {"model": row.installed.id}, partial(self._verified, row_id))

    @Slot(str)
    def repair(self, row_id: str) -> None:
        """Download a model's damaged files again. If it was not verified before, all files are checked."""
        row = self.row(row_id)
        if row is not None and row.installed is not None:
            damaged = self._damaged.pop(row.installed.id, [])
            given = {"model": row.installed.id, **({"damaged": damaged} if damaged else {})}
            self._ask("repair", given, self._take_download, row.name)

    @Slot(str, str)
    def cancel_work(self, job: str, what: str) -> None:
        """Cancel an import, a move or a check."""
        if request := self._works.get((job, what)):
            self._library.cancel(request)

    # --- preparing

    @Slot(str)
    def plan(self, row_id: str) -> None:
        """Request what preparing a model would do and gain."""
        row = self.row(row_id)
        if row is not None and row.installed is not None:
            self._preparation.plan(row_id, row.installed, row.name)

    @Slot(str, str)
    def prepare(self, row_id: str, predictors: str = "train") -> None:
        """Prepare a model for this PC, one at a time. predictors: "train"; or "sign" now and training later."""
        row = self.row(row_id)
        if row is not None and row.installed is not None and self._preparation.start(row.installed, predictors):
            self._choose(row.installed.id, predictors=predictors)

    @Slot()
    def cancel_prepare(self) -> None:
        """Stop preparing. Finished steps are kept for the next try."""
        self._preparation.cancel()

    def _prepared(self, model: records.InstalledModel, values: Values) -> None:
        self._restored(values)
        if self._uses(model.id):
            self._chat.load_model()  # with its new predictors

    def _not_prepared(self, message: UserMessage, again: Callable[[], object]) -> None:
        self._again = again
        self.problem.emit(message)

    # --- the hub

    @Slot(str, str)
    def search(self, query: str, sort: str = "downloads") -> None:
        """Search the hub; only the newest search is answered. An empty query ends the search."""
        self._hub.search(query, sort)

    @Slot(str)
    def look(self, repo: str) -> None:
        """List what a repository offers. repo: its id or address."""
        self._hub.look(repo)

    @Slot(str)
    def set_token(self, token: str) -> None:
        """Store an access token in the system's keyring; an empty one deletes it."""
        self._ask("token", {"set": token}, self.token_state.emit, "")

    @Slot()
    def ask_token(self) -> None:
        self._ask("token", {}, self.token_state.emit, "")

    # --- the share of the card

    def preview(self, model_id: str, vram_budget_gib: float | None, context: int | None = None) -> None:
        """Estimate a model's placement with another budget. While one is computed only the newest request waits."""
        self._preview.ask(model_id, vram_budget_gib, context)

    def set_budget(self, model_id: str, vram_budget_gib: float | None) -> None:
        """Set a model's VRAM budget; None: automatic. Reloads the model if it is loaded."""
        if self._choose(model_id, vram_budget_gib=vram_budget_gib):
            self._load_again(model_id)

    def set_draft(self, model_id: str, draft: str) -> None:
        """Set the smaller model that guesses for a model: its id, "off", or "" for automatic."""
        if self._choose(model_id, draft=draft) and self._uses(model_id):
            self._chat.choose_draft(draft)

    def _load_again(self, model_id: str) -> None:
        self.known.discard_estimate(listed_id(model_id))
        if self._uses(model_id):
            self._chat.load_model()

    def _uses(self, model_id: str) -> bool:
        """Return whether the chats use that model or are loading it."""
        row = self.known.row(listed_id(model_id))
        return row is not None and (row.in_use or row.loading)

    @Slot(int)
    def set_engine_pid(self, pid: int) -> None:
        """Set the engine's pid; its memory counts as free for the next model."""
        self.known.engine_pid = pid

    @Slot(object)
    def take_rate(self, result: protocol.GenerationResult) -> None:
        """Store the rate of a finished answer if the answer was long enough."""
        model = self.known.in_use()
        if model is None or result.tokens < MEASURED_TOKENS or not result.decode_tok_s:
            return
        before = self._rates.get(model.id, model.measured_tok_s)
        if before is None or abs(result.decode_tok_s / before - 1) > MEASURED_DIFFERS:
            self._rates[model.id] = result.decode_tok_s
            self._library.ask("measured", {"model": model.id, "tok_s": result.decode_tok_s})

    @Slot(bool)
    def _idle(self, idle: bool) -> None:
        """Let postponed training run while idle, if there is any."""
        if any(self.choices.of(model.id).predictors == "sign" for model in self.known.installed):
            self._library.ask("idle", {"on": idle})

    def _choose(self, model_id: str, **values: Any) -> bool:
        changed = self.choices.change(listed_id(model_id), **values)
        if changed:
            self._save_choices(self.choices.to_json())
        return changed

    # --- what comes

    def _ask(self, job: str, arguments: Values, done: Done | None, name: str) -> str:
        """Request a job whose failure is shown as a problem. name: the model's display name."""

        def failed(why: protocol.Failed) -> None:
            self._again = lambda: self._ask(job, arguments, done, name)
            self.problem.emit(describe(why, during=job, model=name))

        return self._library.ask(job, arguments, done, failed)

    def _work(self, job: str, what: str, arguments: Values, done: Done) -> None:
        """Start a longer job with progress, one for each subject."""
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
        """Show a download that was just added, before the next news of all downloads."""
        if values.get("download"):
            self.known.put_download(records.from_json(records.Download, values["download"], "download"))

    def _download_name(self, download_id: str) -> str:
        return next((download.name for download in self.known.downloads if download.id == download_id), "")

    def _removed(self, model: records.InstalledModel, values: Values) -> None:
        undo = values.get("undo", "")
        self.known.take_away(model.id)
        restore = partial(self._ask, "restore", {"undo": undo}, self._restored, model.name) if undo else None
        self.toast.emit(
            tr("{name} deleted", name=model.name) if model.owned else tr("{name} removed", name=model.name),
            restore,
        )

    def _restored(self, values: Values) -> None:
        if values.get("model"):
            self.known.put(records.from_json(records.InstalledModel, values["model"], "model"))
            self.known.discard_estimate(values["model"]["id"])

    def _imported(self, path: str, values: Values) -> None:
        self._restored(values)
        model = records.from_json(records.InstalledModel, values["model"], "model")
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

    @Slot(object)
    def _died(self, died: EngineDied) -> None:
        """Report a library process that is not restarted. Otherwise it restarts and its requests are repeated."""
        if not died.restarting:
            self.problem.emit(describe_library_death(died.reason, died.details))
