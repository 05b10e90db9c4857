"""All known models as rows: catalogue, library and downloads. Requests them and applies the library's events.

Actions on models are in app/models/models_controller.py.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.clients.engine_status import EngineStatus, Phase
from app.clients.library_client import Done, Library, Values
from app.later import Later
from app.models.model_choices import ModelChoices
from app.models.model_rows import ModelRow, Preparing, recommended, rows_of
from app.user_messages import UserMessage, describe

if TYPE_CHECKING:
    from engine.library import records
    from engine.service import protocol
else:
    records = Later("engine.library.records")

log = logging.getLogger(__name__)

TELL_AFTER_MS = 40  # several changes within this time are emitted once


class Chat(Protocol):
    """The needed part of the chat controller."""

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

    def choose_draft(self, draft: str) -> None: ...


class KnownModels(QObject):
    """Rows are rebuilt after every change; several changes at a time are emitted once."""

    rows_changed = Signal(list)  # list[ModelRow]
    machine_changed = Signal(object)  # MachineLine
    loading_changed = Signal(bool)  # whether something is loading for the first time
    offer_changed = Signal(object)  # ModelRow | None
    problem = Signal(UserMessage)

    def __init__(self, library: Library, chat: Chat, choices: ModelChoices, offer: bool) -> None:
        super().__init__()
        self._library = library
        self._chat = chat
        self._choices = choices
        self.rows: list[ModelRow] = []
        self.machine: records.MachineLine | None = None
        self.installed: list[records.InstalledModel] = []
        self.folder = ""  # of Hearth's models; empty: unknown
        self.downloads: list[records.Download] = []
        self.preparing: Preparing | None = None
        self.offer: ModelRow | None = None
        self.engine_pid = 0  # of the process that has the loaded model
        self._may_offer = offer
        self._catalogue: list[tuple[records.CatalogueEntry, records.Estimate | None]] = []
        self._estimates: dict[str, records.Estimate] = {}  # by installed id
        self._awaited: set[str] = set()  # of catalogue, library and downloads: those not loaded yet
        self._came_once: set[str] = set()
        self._chat_seen: tuple[str, str] = ("", "")
        self._soon = QTimer(self, singleShot=True, interval=TELL_AFTER_MS)
        self._soon.timeout.connect(self.update_rows)
        library.news.connect(self._on_news)
        chat.status_changed.connect(self._chat_changed)
        chat.model_changed.connect(self._chat_changed)

    # --- asking

    def refresh(self) -> None:
        """Request catalogue, library and downloads again."""
        for job, arguments, take in (
            ("library", {}, self._take_library),
            ("downloads", {}, self._take_downloads),
            ("catalogue", self.held(), self._take_catalogue),
        ):
            if job not in self._awaited:
                self._awaited.add(job)
                self._library.ask(job, arguments, partial(self._came, job, take), partial(self._missed, job))
        self.loading_changed.emit(self.is_loading)

    @property
    def is_loading(self) -> bool:
        """Whether something is loading for the first time."""
        return bool(self._awaited - self._came_once)

    def held(self) -> Values:
        """The memory of the loaded model, for estimates: the next model replaces it."""
        values = {"own_vram_bytes": self._chat.status.vram_bytes, "engine_pid": self.engine_pid}
        return {name: value for name, value in values.items() if value}

    def row(self, row_id: str) -> ModelRow | None:
        """Return the row with this id, or of the installed model or download with it."""
        for row in self.rows:
            if row.id == row_id:
                return row
        for row in self.rows:
            if (row.installed and row.installed.id == row_id) or (row.download and row.download.id == row_id):
                return row
        return None

    def in_use(self) -> records.InstalledModel | None:
        """Return the installed model that the chat uses."""
        return next((row.installed for row in self.rows if row.in_use), None)

    def drafts_of(self, model: records.InstalledModel) -> list[records.InstalledModel]:
        """Return the models that can guess tokens for this one, largest first: its vocabulary, and far fewer bytes."""
        same = [one for one in self.installed if one.vocabulary and one.vocabulary == model.vocabulary]
        same = [one for one in same if one.kind != "embedding"]
        found = [one for one in same if one.state != "broken" and one.n_bytes <= records.DRAFT_SHARE * model.n_bytes]
        return sorted(found, key=lambda one: -one.n_bytes)

    # --- changes that are known before they are reported

    def put(self, model: records.InstalledModel) -> None:
        """Add or replace an installed model."""
        self._estimates.pop(model.id, None)
        self.installed = [other for other in self.installed if other.id != model.id] + [model]
        self.update_rows()

    def take_away(self, model_id: str) -> None:
        self.installed = [model for model in self.installed if model.id != model_id]
        self.update_rows()

    def put_download(self, new: records.Download) -> None:
        if all(download.id != new.id for download in self.downloads):
            self.downloads = [*self.downloads, new]
        self.update_rows()

    def set_preparing(self, preparing: Preparing | None) -> None:
        """Set the progress of preparing. Start and end are emitted at once, the rest with other changes."""
        at_once = self.preparing is None or preparing is None
        self.preparing = preparing
        if at_once:
            self.update_rows()
        else:
            self._soon.start()

    def discard_estimate(self, model_id: str) -> None:
        """Request a model's estimate again."""
        self._estimates.pop(model_id, None)
        self._ask_estimates()

    def refuse_offers(self) -> None:
        self._may_offer = False
        self._tell_offer()

    # --- what comes

    def _came(self, job: str, take: Done, values: Values) -> None:
        self._awaited.discard(job)
        self._came_once.add(job)
        take(values)
        self.loading_changed.emit(self.is_loading)

    def _missed(self, job: str, failed: protocol.Failed) -> None:
        self._awaited.discard(job)
        self.loading_changed.emit(self.is_loading)
        self.problem.emit(describe(failed, during=job))

    @Slot(str, object)
    def _on_news(self, topic: str, values: Values) -> None:
        if topic == "downloads":
            self._take_downloads(values)
        elif topic == "library":
            self._take_library(values)

    def _take_catalogue(self, values: Values) -> None:
        self._catalogue = [
            (records.from_json(records.CatalogueEntry, known["entry"], "entry"),
             records.from_json(records.Estimate, known["estimate"], "estimate") if known.get("estimate") else None)
            for known in values["entries"]
        ]  # fmt: skip
        if values.get("machine"):
            self.machine = records.from_json(records.MachineLine, values["machine"], "machine")
            self._choices.set_machine(self.machine.key)
            self.machine_changed.emit(self.machine)
        self._soon.start()

    def _take_library(self, values: Values) -> None:
        before = {model.id: model for model in self.installed}
        self.installed = [records.from_json(records.InstalledModel, model, "model") for model in values["models"]]
        self.folder = str(values.get("folder", ""))
        self._estimates = {
            model.id: self._estimates[model.id]
            for model in self.installed
            if model.id in self._estimates and _same_placement(before.get(model.id), model)
        }
        self._ask_estimates()
        self._soon.start()

    def _ask_estimates(self) -> None:
        for model in self.installed:
            if model.id not in self._estimates and model.state != "broken":
                self._library.ask("estimate", {"model": model.id, **self._choices.of(model.id).engine(), **self.held()},
                                  partial(self._estimated, model.id), self._not_estimated)  # fmt: skip

    def _estimated(self, model: str, values: Values) -> None:
        if values.get("cancelled"):
            return
        self._estimates[model] = records.from_json(records.Estimate, values, "estimate")
        self._soon.start()

    def _not_estimated(self, failed: protocol.Failed) -> None:
        log.info("no estimate: %s", failed.message)

    def _take_downloads(self, values: Values) -> None:
        self.downloads = [records.from_json(records.Download, download, "download") for download in values["downloads"]]
        self._soon.start()

    @Slot()
    def _chat_changed(self, *_: object) -> None:
        if self._chat_seen != self._of_the_chat():
            self.update_rows()

    def _of_the_chat(self) -> tuple[str, str]:
        """Return the loaded model and the loading one; each may be empty."""
        match self._chat.status.phase:
            case Phase.STARTING | Phase.LOADING | Phase.RESTARTING:
                return "", self._chat.model
            case Phase.OFF | Phase.FAILED:
                return "", ""
        return self._chat.model, ""

    # --- telling

    @Slot()
    def update_rows(self) -> None:
        """Rebuild the rows now and emit them if they changed."""
        self._soon.stop()
        self._chat_seen = in_use, loading = self._of_the_chat()
        rows = rows_of(
            self._catalogue, self.installed, self.downloads, self.preparing, in_use, loading, self._estimates
        )
        if rows != self.rows:
            self.rows = rows
            self.rows_changed.emit(rows)
        self._tell_offer()

    def recommended(self, offered: str = "") -> ModelRow | None:
        """Return the larger model to offer now, or `offered` while it is fetched; None before everything is loaded."""
        if not {"catalogue", "library", "downloads"} <= self._came_once:
            return None
        return recommended(self.rows, self.machine.disk_free_bytes if self.machine else None, offered)

    def _tell_offer(self) -> None:
        offer = self.recommended(self.offer.id if self.offer else "") if self._may_offer else None
        before, self.offer = self.offer, offer
        if _plain_offer(offer) != _plain_offer(before):
            self.offer_changed.emit(offer)

    def close(self) -> None:
        self._soon.stop()


def _plain_offer(row: ModelRow | None) -> ModelRow | None:
    return None if row is None else replace(row, in_use=False, loading=False)


def _same_placement(before: records.InstalledModel | None, after: records.InstalledModel) -> bool:
    """Return whether a model's estimate is still valid."""
    return before is not None and (before.path, before.prepared, before.n_bytes, before.state) == (
        after.path, after.prepared, after.n_bytes, after.state,
    )  # fmt: skip
