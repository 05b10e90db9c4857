"""The record of an answer's tokens, as plain data: stored with the answer, shown and exported."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.service import protocol

MOST_BYTES = 512 * 1024  # kept of one answer, compressed, without its active neurons
MOST_ACTIVE_CHARS = 12 << 20  # of active neurons: those of the last tokens; about 4 MB compressed
_MOST_JSON_BYTES = 64 << 20  # of a record that is read: more is damage


@dataclass(frozen=True)
class Inspection:
    """The record of an answer.

    prompt, rows, texts, n_neurons: as protocol.Inspected has them. model: its name. before: text of the answer before
    the first row. n_left_out: tokens at the end that were too many to keep. hot: as protocol.Inspected, of each part of
    an answer that was continued; a row with `active` has its place there as `hot`.
    """

    prompt: list[int] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    n_neurons: int = 0
    model: str = ""
    before: str = ""
    n_left_out: int = 0
    hot: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, event: protocol.Inspected, model: str) -> Inspection:
        rows = [row | {"hot": 0} if "active" in row else row for row in event.rows]
        return cls(event.prompt, rows, event.texts, event.n_neurons, model, hot=[event.hot])

    @property
    def ids(self) -> list[int]:
        return [row["id"] for row in self.rows]

    def text(self, token: int) -> str:
        return self.texts.get(str(token), "")

    def active(self, place: int) -> NDArray[np.bool_] | None:
        """Return which neurons were active for a token, [L, F]; None if not known."""
        return _flags(self.rows[place].get("active", ""), self.n_neurons)

    def on_gpu(self, place: int) -> NDArray[np.bool_] | None:
        """Return which neurons the GPU computed, [L, F], for a token whose active neurons are known; None: none."""
        return _flags(self.hot[self.rows[place]["hot"]], self.n_neurons)

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
        moved = [row | {"hot": row["hot"] + len(self.hot)} if "active" in row else row for row in later.rows]
        return replace(self, rows=self.rows + moved, texts=self.texts | later.texts, n_left_out=later.n_left_out,
                       hot=self.hot + later.hot)  # fmt: skip

    def to_bytes(self) -> bytes:
        """Return the record compressed, without the last tokens that MOST_BYTES do not hold."""
        record = replace(
            self, rows=[{k: row[k] for k in row if k not in ("active", "hot")} for row in self.rows], hot=[]
        )
        while len(data := record._compressed()) > MOST_BYTES:
            if not record.rows:
                return Inspection(model=self.model, n_left_out=len(self.rows) + self.n_left_out).to_bytes()
            n = len(record.rows) * 3 // 4
            record = replace(record, rows=record.rows[:n], n_left_out=len(self.rows) - n + self.n_left_out)
        left, rows = MOST_ACTIVE_CHARS - sum(map(len, self.hot)), record.rows
        for place in reversed(range(len(rows))):
            left -= len(self.rows[place].get("active", ""))
            if left < 0:
                break
            rows[place] = self.rows[place]
        return replace(record, hot=self.hot)._compressed() if any("active" in row for row in rows) else data

    def _compressed(self) -> bytes:
        return zlib.compress(json.dumps(asdict(self), separators=(",", ":")).encode(), 6)

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
            is_good = is_good and type(found.n_neurons) is int and all(map(found._is_row, found.rows))
        except (zlib.error, ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
            return None
        return found if is_good else None

    def lines(self) -> Iterator[str]:
        """Yield the record as JSON lines: first the prompt, then each token of the answer. See docs/inspector.md."""
        head = {"format": "hearth-inspection", "version": 1, "model": self.model, "neurons_per_layer": self.n_neurons,
                "text_before": self.before, "tokens_left_out": self.n_left_out,
                "prompt": [{"id": token, "text": self.text(token)} for token in self.prompt]}  # fmt: skip
        yield json.dumps(head, ensure_ascii=False)
        for place, row in enumerate(self.rows):
            yield json.dumps(
                {"id": row["id"], "text": self.text(row["id"]), "probability": row["p"],
                 "alternatives": [{"id": t, "text": self.text(t), "probability": p} for t, p in row["top"]],
                 "microseconds": row["us"],
                 **{name: row[key] for key, name in _EXPORTED.items() if key in row}, **self._exported_neurons(place)},
                ensure_ascii=False,
            )  # fmt: skip

    def _exported_neurons(self, place: int) -> dict[str, list[list[int]]]:
        found = {}
        if (active := self.active(place)) is not None:
            found["active_neuron_ids_by_layer"] = [layer.nonzero()[0].tolist() for layer in active]
            if (hot := self.on_gpu(place)) is not None:
                found["active_on_gpu_by_layer"] = [layer.nonzero()[0].tolist() for layer in active & hot]
        return found

    def _is_row(self, row: dict[str, Any]) -> bool:
        """Return whether a row has the values that the inspector shows. Raises: KeyError, TypeError, ValueError."""
        layers, missed = row.get("experts", []), row.get("missed", [])
        numbers = [
            row["us"], *(share for _, share in row["top"]), *row.get("fired", []), *missed,
            *(row[name] for name in ("run", "bytes", "computed", "on_gpu") if name in row),
            *(expert for layer in layers if layer is not None for expert in layer),
        ]  # fmt: skip
        is_known = all(type(number) in (int, float) and abs(number) < 1e30 for number in numbers)
        is_share = type(row["p"]) is float and 0 <= row["p"] <= 1 and bool(row["top"])
        if "active" in row:
            n_chars = -(-len(row["fired"]) * -(-self.n_neurons // 8) // 3) * 4
            bits = [row["active"], *([hot] if (hot := self.hot[row["hot"]]) else [])]
            is_known = is_known and all(len(one) == n_chars and base64.b64decode(one, validate=True) for one in bits)
        return is_known and is_share and (not layers or len(missed) in (0, len(layers)))


_EXPORTED = {
    "run": "tokens_in_run", "bytes": "bytes_read", "fired": "active_neurons_by_layer", "computed": "computed_neurons",
    "on_gpu": "computed_on_gpu", "experts": "experts_by_layer", "missed": "experts_not_on_gpu_by_layer",
}  # fmt: skip


@lru_cache(maxsize=3)  # a token's, those of the token before, and the GPU's
def _flags(bits: str, n_neurons: int) -> NDArray[np.bool_] | None:
    if not bits:
        return None
    import numpy as np

    rows = np.frombuffer(base64.b64decode(bits), np.uint8).reshape(-1, -(-n_neurons // 8))
    return np.unpackbits(rows, axis=1, count=n_neurons, bitorder="little").view(bool)


def joined_text(record: Inspection, tokens: Sequence[int]) -> str:
    return "".join(map(record.text, tokens))
