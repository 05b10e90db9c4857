"""What was recorded of an answer's tokens, as plain data: kept with the answer, shown, exported."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from engine.service import protocol

MOST_BYTES = 512 * 1024  # kept of one answer, compressed
_MOST_JSON_BYTES = 64 << 20  # of a record that is read: more is damage


@dataclass(frozen=True)
class Inspection:
    """The record of an answer.

    prompt, rows, texts, n_neurons: as protocol.Inspected has them. model: its name. before: text of the answer before
    the first row. n_left_out: tokens at the end that were too many to keep.
    """

    prompt: list[int] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    n_neurons: int = 0
    model: str = ""
    before: str = ""
    n_left_out: int = 0

    @classmethod
    def of(cls, event: protocol.Inspected, model: str) -> Inspection:
        return cls(event.prompt, event.rows, event.texts, event.n_neurons, model)

    @property
    def ids(self) -> list[int]:
        """The tokens of the answer."""
        return [row["id"] for row in self.rows]

    def text(self, token: int) -> str:
        return self.texts.get(str(token), "")

    def branched(self, place: int, token: int) -> Inspection:
        """Return the record up to a token, with one of its alternatives in its place, or the token itself."""
        row = self.rows[place]
        if token != row["id"]:
            row = {"id": token, "p": dict(row["top"])[token], "top": row["top"], "us": 0, "run": 0}
        return replace(self, rows=[*self.rows[:place], row], n_left_out=0)

    def followed_by(self, later: Inspection) -> Inspection:
        """Return the record of an answer that was continued.

        If the model did not get the same tokens again, as after a change of the model, only the later part is known.
        """
        if later.prompt != self.prompt + self.ids:
            return replace(later, before=later.before or self.before)
        return replace(self, rows=self.rows + later.rows, texts=self.texts | later.texts, n_left_out=later.n_left_out)

    def to_bytes(self) -> bytes:
        """Return the record compressed, without the last tokens that MOST_BYTES do not hold."""
        record = self
        while len(data := zlib.compress(json.dumps(asdict(record), separators=(",", ":")).encode(), 6)) > MOST_BYTES:
            if not record.rows:
                return Inspection(model=self.model, n_left_out=len(self.rows) + self.n_left_out).to_bytes()
            n = len(record.rows) * 3 // 4
            record = replace(record, rows=record.rows[:n], n_left_out=len(self.rows) - n + self.n_left_out)
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> Inspection | None:
        """Return the record; None if the bytes are damaged."""
        try:
            reader = zlib.decompressobj()
            found = cls(**json.loads(reader.decompress(data, _MOST_JSON_BYTES)))
            known = {int(token) for token in found.texts}
            used = {*found.prompt, *found.ids, *(token for row in found.rows for token, _ in row["top"])}
            texts = (*found.texts.values(), found.model, found.before)
            is_good = reader.eof and used <= known and {int} >= set(map(type, used)) and {str} == set(map(type, texts))
            is_good = is_good and type(found.n_neurons) is int and all(map(_is_row, found.rows))
        except (zlib.error, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        return found if is_good else None

    def lines(self) -> Iterator[str]:
        """Yield the record as JSON lines: first the prompt, then each token of the answer. See docs/inspector.md."""
        head = {"format": "hearth-inspection", "version": 1, "model": self.model, "neurons_per_layer": self.n_neurons,
                "text_before": self.before, "tokens_left_out": self.n_left_out,
                "prompt": [{"id": token, "text": self.text(token)} for token in self.prompt]}  # fmt: skip
        yield json.dumps(head, ensure_ascii=False)
        for row in self.rows:
            yield json.dumps(
                {"id": row["id"], "text": self.text(row["id"]), "probability": row["p"],
                 "alternatives": [{"id": t, "text": self.text(t), "probability": p} for t, p in row["top"]],
                 "microseconds": row["us"],
                 **{name: row[key] for key, name in _EXPORTED.items() if key in row}},
                ensure_ascii=False,
            )  # fmt: skip


def _is_row(row: dict[str, Any]) -> bool:
    """Return whether a row has the values that the inspector shows. Raises: KeyError or TypeError if not."""
    layers, missed = row.get("experts", []), row.get("missed", [])
    numbers = [
        row["us"], *(share for _, share in row["top"]), *row.get("fired", []), *missed,
        *(row[name] for name in ("run", "bytes", "computed", "on_gpu") if name in row),
        *(expert for layer in layers if layer is not None for expert in layer),
    ]  # fmt: skip
    is_known = all(type(number) in (int, float) and abs(number) < 1e30 for number in numbers)
    is_share = type(row["p"]) is float and 0 <= row["p"] <= 1 and bool(row["top"])
    return is_known and is_share and (not layers or len(missed) in (0, len(layers)))


_EXPORTED = {
    "run": "tokens_in_run", "bytes": "bytes_read", "fired": "active_neurons_by_layer", "computed": "computed_neurons",
    "on_gpu": "computed_on_gpu", "experts": "experts_by_layer", "missed": "experts_not_on_gpu_by_layer",
}  # fmt: skip


def joined_text(record: Inspection, tokens: Sequence[int]) -> str:
    """Return the text of tokens, as the model has them."""
    return "".join(map(record.text, tokens))
