"""How fast each mode was on this PC: the last answers' rates by model, device and mode, in a small JSON file.

It holds numbers and the names of models, no word of any chat. Knows no Qt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from app.chat.preset_store import PresetStoreError, read_json, write_json
from app.clients.engine_status import FEWEST_TOKENS, rate
from app.translation import noted, tr, tr_n
from engine.service.protocol import GenerationResult

SCHEMA_VERSION = 1
KEPT = 16  # rates of each kind; older ones go, the PC may be another by now
MAX_MODELS, MAX_FILE_BYTES = 500, 1 << 20
MODE_WORDS = {"auto": noted("Auto"), "sparse": noted("Sparse"), "exact": noted("Exact"), "dense": noted("Dense")}
MODES_TOLD = ("sparse", "exact", "dense")  # what auto can become


@dataclass(frozen=True)
class ModeRate:
    """What a mode reached here: the middle one of its last answers, in tokens/s."""

    tok_s: float
    answers: int


class ModeRates:
    """One a person; what was measured is remembered beyond the end of the program."""

    def __init__(self, path: Path | None = None) -> None:
        """Nothing is read here. path: None keeps everything in memory."""
        self._path = path
        self._rates: dict[str, dict[str, dict[str, list[float]]]] = {}  # model, device, mode: newest last
        self._newer = False

    def take(self, result: GenerationResult) -> bool:
        """An answer has ended; whether it was long enough to tell something."""
        value = result.decode_tok_s
        if result.tokens < FEWEST_TOKENS or not value or not math.isfinite(value) or result.mode not in MODES_TOLD:
            return False
        devices = self._rates.pop(result.model, {})
        self._rates[result.model] = devices  # the one used last stands last, and the oldest go first
        while len(self._rates) > MAX_MODELS:
            del self._rates[next(iter(self._rates))]
        kept = devices.setdefault(result.device, {}).setdefault(result.mode, [])
        kept.append(float(value))
        del kept[:-KEPT]
        return True

    def of(self, model: str, device: str) -> dict[str, ModeRate]:
        """What is known of a model where it runs now ("cpu" or "cuda"), by mode."""
        modes = self._rates.get(model, {}).get(device, {})
        return {mode: ModeRate(median(modes[mode]), len(modes[mode])) for mode in MODES_TOLD if modes.get(mode)}

    def read(self) -> None:
        """Take those of the file; a missing or damaged one gives none, and single bad ones are left out."""
        if self._path is None:
            return
        try:
            values = read_json(self._path, MAX_FILE_BYTES)
        except (OSError, PresetStoreError):
            return
        version = values.get("schema_version") if isinstance(values, dict) else None
        self._newer = type(version) is int and version > SCHEMA_VERSION
        models = values.get("models") if isinstance(values, dict) else None
        if self._newer or not isinstance(models, dict):
            return
        for model, devices in list(models.items())[-MAX_MODELS:]:
            for device, modes in (devices if isinstance(devices, dict) else {}).items():
                for mode, rates in (modes if isinstance(modes, dict) else {}).items():
                    good = [float(one) for one in rates if _is_rate(one)] if isinstance(rates, list) else []
                    if mode in MODES_TOLD and good:
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

    def save(self, values: dict[str, Any]) -> None:
        """Write what `to_json` gave; callable from any thread. Raises OSError."""
        if self._path is not None and not self._newer:
            write_json(self._path, values)


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e6


def in_words(rates: Mapping[str, ModeRate]) -> str:
    """What the modes cost here, in one line: "Exact 38.2 tok/s, dense 21.0 tok/s, in 12 answers on this PC"."""
    if not rates:
        return tr("Not measured yet: it shows here what each costs, once there were answers.")
    words = costs(rates)
    return words[0].upper() + words[1:]


def costs(rates: Mapping[str, ModeRate]) -> str:
    """The same within a sentence; there is at least one rate."""
    parts = [f"{tr(MODE_WORDS[mode]).lower()} {rate(one.tok_s)}" for mode, one in rates.items()]
    answers = sum(one.answers for one in rates.values())
    return tr_n(
        "{rates}, in {n} answer on this PC", "{rates}, in {n} answers on this PC", answers, rates=", ".join(parts)
    )
