"""A comparison of models and modes: answers to the same prompts, and blind votes over pairs of them, in one file.

The file holds one JSON object a line, appended as soon as it is known, so that a killed run loses nothing. This module
reads and writes it. It computes no answers.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from itertools import combinations, islice
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal, get_args

from engine.errors import InvalidRequestError, ModelNotFoundError

KIND, VERSION = "hearth-comparison", 1
MOST_BYTES = 64 << 20  # of a file of results or prompts
MOST_PAIRS = 50_000
_KINDS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float | None": (int, float, type(None))}
Choice = Literal["left", "right", "equal", "neither"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One answer to compute. system: instructions. mode: as requested, with auto. sampling: besides the model's own."""

    prompt: str
    system: str = ""
    model: str
    mode: str
    seed: int
    sampling: Mapping[str, Any]

    @property
    def question(self) -> str:
        """A key that tasks share if they differ only in model and mode."""
        return self._hash(self.prompt, self.system, self.seed, dict(self.sampling))

    @property
    def id(self) -> str:
        """A key of the task that is the same in every run."""
        return self._hash(self.question, self.model, self.mode)

    @staticmethod
    def _hash(*values: object) -> str:
        return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Answer(Task):
    """A finished answer. name: of the model. ran: sparse, exact or dense. Times in seconds, rates in tokens/s."""

    name: str
    ran: str
    text: str
    finish_reason: str
    tokens: int
    prompt_tokens: int
    ttft_s: float | None
    decode_tok_s: float | None
    total_s: float | None
    active_share: float | None

    @property
    def label(self) -> str:
        return f"{self.name}, {self.mode}" + (f" ({self.ran})" if self.mode != self.ran else "")

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Answer:
        """Return the answer of a line. Raises KeyError, TypeError or ValueError."""
        answer = cls(**{one.name: values[one.name] for one in fields(cls)})
        for one in fields(cls):
            if type(values[one.name]) not in _KINDS.get(str(one.type), (dict,)):
                raise TypeError(one.name)
            if isinstance(values[one.name], int | float) and not abs(values[one.name]) < 2**64:
                raise ValueError(one.name)
        return answer


@dataclass(frozen=True)
class Pair:
    """Two answers to the same prompt with the same seed, to be shown without names."""

    left: Answer
    right: Answer

    @property
    def key(self) -> frozenset[str]:
        return frozenset((self.left.id, self.right.id))


@dataclass(frozen=True)
class Row:
    """A model in a mode: medians of its rates and times, the mean of its tokens, and its votes."""

    label: str
    answers: int
    decode_tok_s: float | None
    ttft_s: float | None
    tokens: float
    wins: int
    losses: int
    equal: int
    neither: int

    @property
    def win_share(self) -> float | None:
        """Wins, with half of the equal votes, in all votes but "neither"; None without any."""
        n = self.wins + self.losses + self.equal
        return (self.wins + self.equal / 2) / n if n else None


class ComparisonFile:
    """The answers and votes of a file. Raises: InvalidRequestError or ModelNotFoundError if it cannot be used."""

    def __init__(self, path: Path, create: bool = False) -> None:
        """create: begin the file if it does not exist."""
        self.path = path
        self.answers: dict[str, Answer] = {}  # by id
        self.failures: dict[tuple[str, str, str], str] = {}  # by model, mode, and id of the task or "" for all: why
        self.votes: dict[frozenset[str], tuple[str, Choice]] = {}  # by pair: id of the left answer, and the choice
        self.seed = random.getrandbits(31)  # of the order of pairs
        self._size = self._lines = 0  # up to the last complete line
        if create and not path.exists():
            self._append({"kind": KIND, "version": VERSION, "seed": self.seed})
            return
        self._take_all(read_bytes(path))

    def _take_all(self, data: bytes) -> None:
        """Take the complete lines of what follows the known ones. A killed run may have left a part of a line."""
        n_bytes = data.rfind(b"\n") + 1
        for line in data[:n_bytes].splitlines() or ([] if self._lines else [b""]):
            self._lines += 1
            try:
                self._take(json.loads(line), self._lines)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
                what = "is not a comparison file" if self._lines == 1 else f"is damaged in line {self._lines}"
                raise InvalidRequestError(
                    f"{self.path.name} {what}.", "Choose another file, or make a new one with hearth-engine compare."
                ) from error
        self._size += n_bytes

    def _take(self, values: dict[str, Any], number: int) -> None:
        kind = values["kind"]
        if (kind == KIND) != (number == 1):
            raise ValueError(kind)
        if kind == KIND:
            if values["version"] > VERSION:
                raise InvalidRequestError(
                    f"{self.path.name} is from a newer version of Hearth.", "Update Hearth to open it."
                )
            self.seed = int(values["seed"])
        elif kind == "answer":
            json.dumps(values, ensure_ascii=False).encode()  # half of a surrogate pair cannot be written elsewhere
            self._keep(Answer.read(values))
        elif kind == "failed":
            self.failures[str(values["model"]), str(values["mode"]), str(values["task"])] = str(values["error"])
        elif kind == "vote" and values["choice"] in get_args(Choice):
            self.votes[frozenset((values["left"], values["right"]))] = (values["left"], values["choice"])
        else:
            raise ValueError(kind)

    def _keep(self, answer: Answer) -> None:
        self.answers[answer.id] = answer
        for task in ("", answer.id):
            self.failures.pop((answer.model, answer.mode, task), None)

    def _append(self, values: Mapping[str, Any]) -> None:
        """Write a line at once, behind those that another process has written since. Raises InvalidRequestError."""
        line = json.dumps(values, allow_nan=False).encode() + b"\n"
        try:
            with self.path.open("r+b" if self._size else "xb") as file:
                if self._size:
                    if file.seek(0, os.SEEK_END) < self._size:
                        raise InvalidRequestError(f"{self.path.name} was changed by another program.", "Open it again.")
                    file.seek(self._size)
                    self._take_all(file.read())
                file.truncate(self._size)
                file.seek(self._size)
                file.write(line)
        except OSError as error:
            raise InvalidRequestError(
                f"{self.path} cannot be written: {error.strerror}.", "Free some space, or choose another file."
            ) from error
        self._size += len(line)
        self._lines += 1

    def add_answer(self, answer: Answer) -> None:
        self._append({"kind": "answer", **asdict(answer)})
        self._keep(answer)

    def add_failure(self, model: str, mode: str, error: str, task: str = "") -> None:
        """task: id of the one that failed; "": all of the model and mode."""
        self._append({"kind": "failed", "model": model, "mode": mode, "task": task, "error": error})
        self.failures[model, mode, task] = error

    def add_vote(self, pair: Pair, choice: Choice) -> None:
        """Store a vote; a later one for the same pair replaces it."""
        self._append({"kind": "vote", "left": pair.left.id, "right": pair.right.id, "choice": choice})
        self.votes[pair.key] = (pair.left.id, choice)

    @property
    def failed(self) -> list[str]:
        """The failures, one sentence for each reason."""
        reasons = Counter(f"{model}, {mode}: {why}" for (model, mode, _), why in self.failures.items())
        return [words + (f" ({n} times)" if n > 1 else "") for words, n in reasons.items()]

    def questions(self) -> list[list[Answer]]:
        """Return the answers to each prompt with each seed."""
        groups: dict[str, list[Answer]] = {}
        for answer in self.answers.values():
            groups.setdefault(answer.question, []).append(answer)
        return list(groups.values())

    def pairs(self) -> list[Pair]:
        """Return the pairs, at most MOST_PAIRS, in an order that the file's seed decides. Equal texts make none."""
        found: dict[str, Pair] = {}
        groups = (sorted(group, key=lambda answer: answer.id) for group in self.questions())
        for one, other in islice((pair for group in groups for pair in combinations(group, 2)), MOST_PAIRS):
            drawn = sha256(f"{self.seed} {one.id} {other.id}".encode()).hexdigest()
            if one.text.strip() != other.text.strip():
                found[drawn] = Pair(one, other) if int(drawn, 16) % 2 else Pair(other, one)
        return [found[drawn] for drawn in sorted(found)]

    def rows(self) -> list[Row]:
        """Return a row for each model and mode, the highest share of wins first."""
        groups: dict[tuple[str, str], list[Answer]] = {}
        for answer in self.answers.values():
            groups.setdefault((answer.model, answer.mode), []).append(answer)
        counts: Counter[tuple[str, str, str]] = Counter()
        for pair, (left, choice) in self.votes.items():
            for one in (self.answers[task] for task in pair if pair <= self.answers.keys()):
                won = choice == ("left" if one.id == left else "right")
                how = choice if choice in ("equal", "neither") else "wins" if won else "losses"
                counts[one.model, one.mode, how] += 1
        labels = Counter(group[-1].label for group in groups.values())
        rows = []
        for (model, mode), group in groups.items():
            label = group[-1].label
            wins, losses, equal, neither = (counts[model, mode, n] for n in ("wins", "losses", "equal", "neither"))
            rows.append(Row(
                label if labels[label] == 1 else f"{label}, {model}", len(group),
                _median([one.decode_tok_s for one in group]), _median([one.ttft_s for one in group]),
                fmean(one.tokens for one in group), wins, losses, equal, neither,
            ))  # fmt: skip
        return sorted(rows, key=lambda row: -1 if row.win_share is None else row.win_share, reverse=True)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file. Raises ModelNotFoundError, or InvalidRequestError if it is too large."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InvalidRequestError(f"{path.name} is larger than {MOST_BYTES >> 20} MiB.", "Split it.")
        return path.read_bytes()
    except OSError as error:
        raise ModelNotFoundError(f"{path} cannot be read: {error.strerror}.", "Check the path.") from error


def read_prompts(path: Path) -> list[tuple[str, str]]:
    """Return the prompts of a file, each with its instructions: one a line, or, in a .jsonl file, one JSON object a
    line with "prompt" and, optionally, "system".

    Raises: as `read_bytes`, and InvalidRequestError for a bad line.
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{path} is not UTF-8 text (byte {error.start}).", "Save it as UTF-8.") from error
    prompts = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        if path.suffix.lower() != ".jsonl":
            prompts.append((line.strip(), ""))
            continue
        try:
            values = json.loads(line)
            prompt, system = values["prompt"], values.get("system", "")
            if not (isinstance(prompt, str) and isinstance(system, str) and prompt.strip()):
                raise TypeError("no text")
            f"{prompt}{system}".encode()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidRequestError(
                f"Line {number} of {path} is not a prompt.", 'Write one JSON object a line: {"prompt": "..."}.'
            ) from error
        prompts.append((prompt, system))
    if not prompts:
        raise InvalidRequestError(f"{path} contains no prompt.", "Write one prompt per line.")
    return prompts
