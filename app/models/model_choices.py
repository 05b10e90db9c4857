"""What a person chose for a model on this machine: its share of the card's memory, its context, its predictors.

A small JSON file in the config folder. A machine is named by MachineLine.key; before the machine is known, the choices
of the last one count. Knows no Qt and no engine.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from app.models.model_rows import listed_id

SCHEMA_VERSION = 1
MAX_FILE_BYTES = 1 << 20
MAX_BUDGET_GIB, MAX_CONTEXT = 1024.0, 1 << 24


@dataclass(frozen=True)
class Choice:
    """None, and empty: automatic."""

    vram_budget_gib: float | None = None
    context: int | None = None
    predictors: str = ""  # "train" or "sign"

    def engine(self) -> dict[str, Any]:
        """Those fields of engine.config.EngineConfig that the person chose."""
        values = {"vram_budget_gib": self.vram_budget_gib, "context": self.context}
        return {name: value for name, value in values.items() if value is not None}


class ModelChoices:
    """The choices of one person, by machine and model."""

    def __init__(self, path: Path | None = None) -> None:
        """Nothing is read here. path: None keeps everything in memory."""
        self._path = path
        self._machine = ""  # key of the one that was seen last
        self._choices: dict[str, dict[str, Choice]] = {}
        self._newer = False  # the file belongs to a newer Hearth and stays as it is

    def read(self) -> None:
        """Take those of the file; a missing or damaged one gives none, and single bad values are left out."""
        if self._path is None:
            return
        try:
            values = json.loads(self._path.read_bytes()) if self._path.stat().st_size <= MAX_FILE_BYTES else None
        except (OSError, ValueError, RecursionError):
            return
        if not isinstance(values, dict):
            return
        version = values.get("schema_version")
        self._newer = type(version) is int and version > SCHEMA_VERSION
        machines = values.get("machines")
        if self._newer or not isinstance(machines, dict):
            return
        machine = values.get("machine")
        self._machine = machine if isinstance(machine, str) else ""
        for key, models in machines.items():
            if isinstance(models, dict):
                found = {model: _checked(chosen) for model, chosen in models.items() if isinstance(chosen, dict)}
                self._choices[key] = {model: choice for model, choice in found.items() if choice != Choice()}

    def set_machine(self, key: str) -> bool:
        """The machine is known now; whether other choices than before count from here on."""
        before, self._machine = self._machine, key
        if before == "" and "" in self._choices:  # chosen before any machine was known: it was this one
            self._choices.setdefault(key, {}).update(self._choices.pop(""))
            return False
        return self._choices.get(before, {}) != self._choices.get(key, {})

    def of(self, model: str) -> Choice:
        return self._choices.get(self._machine, {}).get(model, Choice())

    def engine_options(self, model: str) -> dict[str, Any]:
        """Return the fields of EngineConfig that the user chose for a model; model: its id, or its path."""
        return self.of(listed_id(model)).engine()

    def change(self, model: str, **values: Any) -> bool:
        """Remember something for a model on this machine; whether that differs from before."""
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

    def save(self, values: dict[str, Any]) -> None:
        """Write what `to_json` gave, in one atomic step; callable from any thread. Raises OSError."""
        if self._path is None or self._newer:
            return
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("w", encoding="utf-8") as file:
                json.dump(values, file, indent=2)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def _checked(values: dict[str, Any]) -> Choice:
    """What of a model's choices makes sense."""
    given = {field.name: values[field.name] for field in fields(Choice) if field.name in values}
    budget, context = given.get("vram_budget_gib"), given.get("context")
    good: dict[str, Any] = {}
    if isinstance(budget, int | float) and not isinstance(budget, bool) and 0 < budget <= MAX_BUDGET_GIB:
        good["vram_budget_gib"] = float(budget)
    if isinstance(context, int) and not isinstance(context, bool) and 0 < context <= MAX_CONTEXT:
        good["context"] = context
    if given.get("predictors") in ("train", "sign"):
        good["predictors"] = given["predictors"]
    return Choice(**good)
