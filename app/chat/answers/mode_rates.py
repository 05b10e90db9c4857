"""Measured rates of each mode on this PC: of the last answers, by model, device and mode, in a small JSON file.

It contains numbers and model names, nothing from chats. No Qt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.chat.store.preset_store import VersionedFile
from app.clients.engine_status import FEWEST_TOKENS
from app.translation import noted, tr, tr_n
from app.units import rate

if TYPE_CHECKING:
    from engine.service.protocol import GenerationResult

SCHEMA_VERSION = 1
KEPT = 16  # rates of each kind; older ones may be of another PC
MAX_MODELS, MAX_FILE_BYTES = 500, 1 << 20
MODE_TEXTS = {"auto": noted("Auto"), "sparse": noted("Sparse"), "exact": noted("Exact"), "dense": noted("Dense")}
MEASURED_MODES = ("sparse", "exact", "dense")  # what auto can stand for


@dataclass(frozen=True)
class ModeRate:
    """The median rate of a mode's last answers here, in tokens/s."""

    tok_s: float
    answers: int


class ModeRates(VersionedFile):
    """The measured rates of all models; saved across restarts."""

    def __init__(self, path: Path | None = None) -> None:
        """Read nothing. path: None keeps everything in memory."""
        super().__init__(path, SCHEMA_VERSION)
        self._rates: dict[str, dict[str, dict[str, list[float]]]] = {}  # by model, device, mode; newest last

    def take(self, result: GenerationResult) -> bool:
        """Record an answer's rate. Returns False if the answer was too short."""
        value = result.decode_tok_s
        if result.tokens < FEWEST_TOKENS or not value or not math.isfinite(value) or result.mode not in MEASURED_MODES:
            return False
        devices = self._rates.pop(result.model, {})
        self._rates[result.model] = devices  # the last used model is last; the first ones are dropped
        while len(self._rates) > MAX_MODELS:
            del self._rates[next(iter(self._rates))]
        kept = devices.setdefault(result.device, {}).setdefault(result.mode, [])
        kept.append(float(value))
        del kept[:-KEPT]
        return True

    def of(self, model: str, device: str) -> dict[str, ModeRate]:
        """Return the rates of a model on a device ("cpu" or "cuda"), by mode."""
        from statistics import median  # not needed for the first paint

        modes = self._rates.get(model, {}).get(device, {})
        return {mode: ModeRate(median(modes[mode]), len(modes[mode])) for mode in MEASURED_MODES if modes.get(mode)}

    def read(self) -> None:
        """Read the file; a missing or damaged one gives nothing, and bad values are skipped."""
        models = self.values(MAX_FILE_BYTES).get("models")
        if not isinstance(models, dict):
            return
        for model, devices in list(models.items())[-MAX_MODELS:]:
            for device, modes in (devices if isinstance(devices, dict) else {}).items():
                for mode, rates in (modes if isinstance(modes, dict) else {}).items():
                    good = [float(one) for one in rates if _is_rate(one)] if isinstance(rates, list) else []
                    if mode in MEASURED_MODES and good:
                        self._rates.setdefault(model, {}).setdefault(device, {})[mode] = good[-KEPT:]

    def to_json(self) -> dict[str, Any]:
        models = {
            model: {
                device: {mode: [round(one, 3) for one in rates] for mode, rates in modes.items()}
                for device, modes in devices.items()
            }
            for model, devices in self._rates.items()
        }
        return {"schema_version": SCHEMA_VERSION, "models": models}


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e6


def rates_text(rates: Mapping[str, ModeRate]) -> str:
    """Return the rates in one line: "Exact 38.2 tok/s, dense 21.0 tok/s, in 12 answers on this PC"."""
    if not rates:
        return tr("Not measured yet. After some answers, this shows how fast each one is.")
    words = costs(rates)
    return words[0].upper() + words[1:]


def costs(rates: Mapping[str, ModeRate]) -> str:
    """Return the rates as part of a sentence. At least one is needed."""
    parts = [f"{tr(MODE_TEXTS[mode]).lower()} {rate(one.tok_s)}" for mode, one in rates.items()]
    answers = sum(one.answers for one in rates.values())
    return tr_n(
        "{rates}, in {n} answer on this PC", "{rates}, in {n} answers on this PC", answers, rates=", ".join(parts)
    )
