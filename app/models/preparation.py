"""Plans and runs the preparation of a model for this PC, one model at a time, as jobs of the library."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.clients.library_client import Library, Values
from app.later import Later
from app.models.known_models import KnownModels
from app.models.model_rows import Preparing
from app.translation import tr
from app.user_messages import describe

if TYPE_CHECKING:
    from engine.library import records
    from engine.service import protocol
else:
    records = Later("engine.library.records")


class Preparation(QObject):
    """All methods return at once; results are signals on the main thread."""

    planned = Signal(str, object)  # row id, PreparePlan | UserMessage
    said = Signal(str, object)  # text of a toast; a Severity if nothing was done, else None
    prepared = Signal(object, dict)  # InstalledModel as it was, the values of the job
    failed = Signal(object, object)  # UserMessage, and a callable that tries again

    def __init__(self, library: Library, known: KnownModels) -> None:
        super().__init__()
        self._library, self._known = library, known
        self._request = ""  # of the running preparation

    def plan(self, row_id: str, model: records.InstalledModel, name: str) -> None:
        """Request what preparing a model would do and gain."""
        self._library.ask(
            "prepare_plan",
            {"model": model.id},
            lambda values: self.planned.emit(row_id, records.from_json(records.PreparePlan, values, "plan")),
            lambda why: self.planned.emit(row_id, describe(why, during="prepare_plan", model=name)),
        )

    def start(self, model: records.InstalledModel, predictors: str) -> bool:
        """Prepare a model. Return False while another one is being prepared."""
        if self._request:
            self.said.emit(tr("Another model is being prepared: stop that first, or wait"), "warn")
            return False
        self._request = self._library.ask(
            "prepare",
            {"model": model.id, "predictors": predictors},
            partial(self._succeeded, model),
            partial(self._failed, model, predictors),
            partial(self._progressed, model),
        )
        self._known.set_preparing(Preparing(model.id))
        return True

    def cancel(self) -> None:
        """Stop preparing. Finished steps are kept for the next try."""
        if self._request:
            self._library.cancel(self._request)

    def _progressed(self, model: records.InstalledModel, event: protocol.Progress) -> None:
        self._known.set_preparing(Preparing(model.id, event.stage, event.done, event.total, event.eta_s))

    def _succeeded(self, model: records.InstalledModel, values: Values) -> None:
        self._end()
        if not values.get("cancelled"):
            self.said.emit(tr("{name} is prepared for this PC", name=model.name), None)
            self.prepared.emit(model, values)

    def _failed(self, model: records.InstalledModel, predictors: str, why: protocol.Failed) -> None:
        self._end()
        self.failed.emit(describe(why, during="prepare", model=model.name), partial(self.start, model, predictors))

    def _end(self) -> None:
        self._request = ""
        self._known.set_preparing(None)
