"""The user's choices for a model on this PC: VRAM budget, context, predictors, draft. No Qt.

A small JSON file in the config folder. MachineLine.key names the PC; until it is known, the last PC's choices apply.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from app.chat.store.preset_store import VersionedFile
from app.models.model_rows import listed_id

SCHEMA_VERSION = 1
MAX_FILE_BYTES = 1 << 20
MAX_BUDGET_GIB, MAX_CONTEXT, MAX_ID_CHARS = 1024.0, 1 << 24, 500


@dataclass(frozen=True)
class Choice:
    """None and empty: automatic."""

    vram_budget_gib: float | None = None
    context: int | None = None
    predictors: str = ""  # "train" or "sign"
    draft: str = ""  # the smaller model that guesses tokens: "off" or its id

    def engine(self) -> dict[str, Any]:
        """Return the fields of engine.config.EngineConfig that the user chose."""
        values = {"vram_budget_gib": self.vram_budget_gib, "context": self.context, "draft": self.draft or None}
        return {name: value for name, value in values.items() if value is not None}


class ModelChoices(VersionedFile):
    """The user's choices, by PC and model."""

    def __init__(self, path: Path | None = None) -> None:
        """Read nothing. path: None keeps everything in memory."""
        super().__init__(path, SCHEMA_VERSION)
        self._machine = ""  # key of the last one seen
        self._choices: dict[str, dict[str, Choice]] = {}

    def read(self) -> None:
        """Read the file; a missing or damaged one gives nothing, and bad values are skipped."""
        values = self.values(MAX_FILE_BYTES)
        machines = values.get("machines")
        if not isinstance(machines, dict):
            return
        machine = values.get("machine")
        self._machine = machine if isinstance(machine, str) else ""
        for key, models in machines.items():
            if isinstance(models, dict):
                found = {model: _checked(chosen) for model, chosen in models.items() if isinstance(chosen, dict)}
                self._choices[key] = {model: choice for model, choice in found.items() if choice != Choice()}

    def set_machine(self, key: str) -> bool:
        """Set the PC. Returns whether other choices apply from now on."""
        before, self._machine = self._machine, key
        if before == "" and "" in self._choices:  # chosen before the PC was known: for this one
            self._choices.setdefault(key, {}).update(self._choices.pop(""))
            return False
        return self._choices.get(before, {}) != self._choices.get(key, {})

    def of(self, model: str) -> Choice:
        return self._choices.get(self._machine, {}).get(model, Choice())

    def engine_options(self, model: str) -> dict[str, Any]:
        """Return the fields of EngineConfig that the user chose for a model, given by id or path."""
        return self.of(listed_id(model)).engine()

    def change(self, model: str, **values: Any) -> bool:
        """Store choices for a model on this PC. Returns whether they changed."""
        before = self.of(model)
        after = replace(before, **values)
        models = self._choices.setdefault(self._machine, {})
        if after == Choice():
            models.pop(model, None)
        else:
            models[model] = after
        return after != before

    def to_json(self) -> dict[str, Any]:
        machines = {key: {m: asdict(choice) for m, choice in models.items()} for key, models in self._choices.items()}
        return {"schema_version": SCHEMA_VERSION, "machine": self._machine, "machines": machines}


def _checked(values: dict[str, Any]) -> Choice:
    """Return a model's valid choices."""
    given = {field.name: values[field.name] for field in fields(Choice) if field.name in values}
    budget, context = given.get("vram_budget_gib"), given.get("context")
    good: dict[str, Any] = {}
    if isinstance(budget, int | float) and not isinstance(budget, bool) and 0 < budget <= MAX_BUDGET_GIB:
        good["vram_budget_gib"] = float(budget)
    if isinstance(context, int) and not isinstance(context, bool) and 0 < context <= MAX_CONTEXT:
        good["context"] = context
    if given.get("predictors") in ("train", "sign"):
        good["predictors"] = given["predictors"]
    if isinstance(draft := given.get("draft"), str) and len(draft) <= MAX_ID_CHARS:
        good["draft"] = draft
    return Choice(**good)
