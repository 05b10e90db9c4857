"""The error budget under which predictors were chosen, and its measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.errors import ModelFormatError
from engine.sparsity.predictor_parts import optional_number

_MAX_TEXTS = 64


@dataclass(frozen=True)
class MeasuredText:
    """Loss of the masked model against exact mode on one kind of text, as shares: 0.01 for 1 %."""

    text: str
    perplexity_rise: float
    top1_agreement: float


@dataclass(frozen=True)
class Budget:
    """The error budget of a predictor.

    perplexity_rise: maximum rise, a share. held: whether every measured text stayed within it. level: the common recall
    of contribution that the thresholds were set to.
    """

    perplexity_rise: float
    measured: tuple[MeasuredText, ...]
    held: bool
    level: float

    def to_json(self) -> dict[str, Any]:
        """Return the budget as in the artefact's head."""
        return {"perplexity_rise": self.perplexity_rise, "measured": [vars(one) for one in self.measured],
                "held": self.held, "level": self.level}  # fmt: skip

    @classmethod
    def from_json(cls, value: Any, where: str) -> Budget | None:
        """Read what `to_json` wrote; None if there is none. Raises: ModelFormatError."""
        if value is None:
            return None
        measured = value.get("measured") if isinstance(value, dict) else None
        if not isinstance(measured, list) or len(measured) > _MAX_TEXTS or not isinstance(value.get("held"), bool):
            raise ModelFormatError(f"{where} has an invalid budget.")
        texts = []
        for one in measured:
            if not isinstance(one, dict) or not isinstance(one.get("text"), str):
                raise ModelFormatError(f"{where} has a budget that was measured on no text.")
            texts.append(
                MeasuredText(one["text"], _number(one, "perplexity_rise", where), _number(one, "top1_agreement", where))
            )
        return cls(
            _number(value, "perplexity_rise", where), tuple(texts), value["held"], _number(value, "level", where)
        )


def _number(values: dict[str, Any], key: str, where: str) -> float:
    found = optional_number(values.get(key), f"{key} of the budget in {where}")
    if found is None:
        raise ModelFormatError(f"The budget in {where} lacks {key}.")
    return found
