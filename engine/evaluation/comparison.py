"""A comparison of models and modes: answers to the same prompts, and blind votes over pairs of them, in one file.

The file holds one JSON object a line, appended as soon as it is known, so that a killed run loses nothing. This module
reads and writes it. It computes no answers.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal, get_args

from engine.errors import InvalidRequestError, ModelNotFoundError

KIND, VERSION = "hearth-comparison", 1
MOST_BYTES = 64 << 20  # of a file of results or prompts
Choice = Literal["left", "right", "equal", "neither"]
_NEW = "Choose another file, or make a new one with hearth-engine compare."


@dataclass(frozen=True)
class Prompt:
    """What is asked. system: instructions; may be empty."""

    text: str
    system: str = ""


@dataclass(frozen=True)
class Task:
    """One answer to compute. mode: as asked, with auto. sampling: other values than the model's own."""

    prompt: Prompt
    model: str
    mode: str
    seed: int
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The same for the same task, in every run."""
        values = [self.prompt.text, self.prompt.system, self.model, self.mode, self.seed, dict(self.sampling)]
        return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def question(self) -> str:
        """The same for tasks that differ in model and mode alone."""
        return Task(self.prompt, "", "", self.seed, self.sampling).id


@dataclass(frozen=True)
class Answer:
    """A finished answer. name: of the model. ran: sparse, exact or dense. Times in seconds, rates in tokens/s."""

    task: Task
    name: str
    ran: str
    text: str
    finish_reason: str
    tokens: int
    prompt_tokens: int
    ttft_s: float | None
    decode_tok_s: float | None
    total_s: float
    active_share: float | None

    @property
    def label(self) -> str:
        """Model and mode."""
        mode = self.task.mode
        return f"{self.name}, {mode}" if mode == self.ran else f"{self.name}, {mode} ({self.ran})"


@dataclass(frozen=True)
class Pair:
    """Two answers to the same prompt with the same seed, to be shown without names."""

    left: Answer
    right: Answer

    @property
    def key(self) -> tuple[str, str]:
        first, second = sorted((self.left.task.id, self.right.task.id))
        return first, second


@dataclass(frozen=True)
class Row:
    """A model in a mode: medians of its rates and times, the mean of its tokens, and its votes.

    win_share: wins, with half of the draws, in all votes but "neither"; None without any.
    """

    label: str
    answers: int
    decode_tok_s: float | None
    ttft_s: float | None
    tokens: float
    wins: int = 0
    losses: int = 0
    equal: int = 0
    neither: int = 0
    win_share: float | None = None


class ComparisonFile:
    """The answers and votes of a file. Raises: InvalidRequestError or ModelNotFoundError, if it cannot be used."""

    def __init__(self, path: Path, create: bool = False) -> None:
        """create: begin the file if it does not exist."""
        self.path = path
        self.answers: dict[str, Answer] = {}  # by the id of the task
        self.failures: dict[tuple[str, str, str], str] = {}  # by model, mode, and id of the task or "" for all: why
        self.votes: dict[tuple[str, str], tuple[str, Choice]] = {}  # by pair: id of the left answer, and the choice
        self.seed = random.getrandbits(31)  # of the order of pairs
        self._size = 0  # up to the last complete line
        if create and not path.exists():
            self.append({"kind": KIND, "version": VERSION, "seed": self.seed})
        else:
            self._read()

    def _read(self) -> None:
        data = read_bytes(self.path)
        self._size = data.rfind(b"\n") + 1  # a run that was killed may have left a part of a line
        for number, line in enumerate(data[: self._size].split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                self._take(json.loads(line), number)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                what = "is no comparison" if number == 1 else f"is damaged in line {number}"
                raise InvalidRequestError(f"{self.path.name} {what}.", _NEW) from error
        if not self._size:
            raise InvalidRequestError(f"{self.path.name} is no comparison.", _NEW)

    def _take(self, values: dict[str, Any], number: int) -> None:
        kind = values["kind"]
        if number == 1:
            if kind != KIND:
                raise ValueError(kind)
            if values["version"] > VERSION:
                raise InvalidRequestError(
                    f"{self.path.name} is from a newer version of Hearth.", "Update Hearth to open it."
                )
            self.seed = int(values["seed"])
        elif kind == "answer":
            self._add(_answer_of(values))
        elif kind == "failed":
            self.failures[str(values["model"]), str(values["mode"]), str(values["task"])] = str(values["error"])
        elif kind == "vote":
            left, right, choice = str(values["left"]), str(values["right"]), values["choice"]
            if choice not in get_args(Choice):
                raise ValueError(choice)
            first, second = sorted((left, right))
            self.votes[first, second] = (left, choice)

    def _add(self, answer: Answer) -> None:
        self.answers[answer.task.id] = answer
        for task in ("", answer.task.id):
            self.failures.pop((answer.task.model, answer.task.mode, task), None)

    def append(self, values: Mapping[str, Any]) -> None:
        """Write a line at once. Raises InvalidRequestError."""
        line = json.dumps(values, allow_nan=False).encode() + b"\n"
        try:
            with self.path.open("r+b" if self._size else "wb") as file:
                file.truncate(self._size)
                file.seek(self._size)
                file.write(line)
        except OSError as error:
            raise InvalidRequestError(
                f"{self.path} cannot be written: {error.strerror}.", "Free the disk, or choose another file."
            ) from error
        self._size += len(line)

    def add_answer(self, answer: Answer) -> None:
        task = {**asdict(answer.task), "prompt": answer.task.prompt.text, "system": answer.task.prompt.system}
        self.append({"kind": "answer", **task, **{k: v for k, v in asdict(answer).items() if k != "task"}})
        self._add(answer)

    def add_failure(self, model: str, mode: str, error: str, task: str = "") -> None:
        """task: id of the one that failed; "": all of the model and mode."""
        self.append({"kind": "failed", "model": model, "mode": mode, "task": task, "error": error})
        self.failures[model, mode, task] = error

    @property
    def failed(self) -> list[str]:
        """What failed and why, one sentence for each reason."""
        reasons = Counter((model, mode, why) for (model, mode, _), why in self.failures.items())
        return [
            f"{model}, {mode}: {why}" + (f" ({n} times)" if n > 1 else "") for (model, mode, why), n in reasons.items()
        ]

    def add_vote(self, pair: Pair, choice: Choice) -> None:
        """Store a vote; a later one for the same pair replaces it."""
        left, right = pair.left.task.id, pair.right.task.id
        self.append({"kind": "vote", "left": left, "right": right, "choice": choice})
        self.votes[pair.key] = (left, choice)

    # -------------------------------------------------------------- pairs and rows

    def pairs(self) -> list[Pair]:
        """Return all pairs in an order that the file's seed holds. Equal texts make no pair."""
        groups: dict[str, list[Answer]] = {}
        for answer in self.answers.values():
            groups.setdefault(answer.task.question, []).append(answer)
        found = [
            (first, second)
            for group in groups.values()
            for first, second in combinations(sorted(group, key=lambda one: one.task.id), 2)
            if first.text.strip() != second.text.strip()
        ]

        def drawn(pair: tuple[Answer, Answer]) -> str:
            return sha256(f"{self.seed} {pair[0].task.id} {pair[1].task.id}".encode()).hexdigest()

        return [Pair(*(pair if int(drawn(pair), 16) % 2 else pair[::-1])) for pair in sorted(found, key=drawn)]

    def rows(self) -> list[Row]:
        """Return a row for each model and mode, most wins first."""
        groups: dict[tuple[str, str], list[Answer]] = {}
        for answer in self.answers.values():
            groups.setdefault((answer.task.model, answer.task.mode), []).append(answer)
        labels = {key: group[-1].label for key, group in groups.items()}
        counts: dict[tuple[str, str], dict[str, int]] = {
            key: dict.fromkeys(("wins", "losses", "equal", "neither"), 0) for key in groups
        }
        for (first, second), (left, choice) in self.votes.items():
            if first not in self.answers or second not in self.answers:
                continue
            ends = {one: (self.answers[one].task.model, self.answers[one].task.mode) for one in (first, second)}
            for one, key in ends.items():
                won = choice == ("left" if one == left else "right")
                counts[key][choice if choice in ("equal", "neither") else "wins" if won else "losses"] += 1
        rows = [
            Row(
                labels[key] if list(labels.values()).count(labels[key]) == 1 else f"{labels[key]}, {key[0]}",
                len(group),
                _median([one.decode_tok_s for one in group]),
                _median([one.ttft_s for one in group]),
                fmean(one.tokens for one in group),
                **counts[key],
                win_share=_share(counts[key]),
            )
            for key, group in groups.items()
        ]
        return sorted(rows, key=lambda row: -(row.win_share if row.win_share is not None else -1))


def _share(counts: Mapping[str, int]) -> float | None:
    n = counts["wins"] + counts["losses"] + counts["equal"]
    return (counts["wins"] + counts["equal"] / 2) / n if n else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _answer_of(values: dict[str, Any]) -> Answer:
    """Raises KeyError, TypeError or ValueError."""
    texts = [values[name] for name in ("prompt", "system", "model", "mode", "name", "ran", "text", "finish_reason")]
    numbers = [
        values[name] for name in ("tokens", "prompt_tokens", "ttft_s", "decode_tok_s", "total_s", "active_share")
    ]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("A text is none.")
    if not all(value is None or type(value) in (int, float) for value in numbers):
        raise TypeError("A number is none.")
    prompt, system, model, mode, name, ran, text, finish_reason = texts
    tokens, prompt_tokens, ttft_s, decode_tok_s, total_s, active_share = numbers
    task = Task(Prompt(prompt, system), model, mode, int(values["seed"]), dict(values["sampling"]))
    counts = int(tokens), int(prompt_tokens)
    return Answer(task, name, ran, text, finish_reason, *counts, ttft_s, decode_tok_s, float(total_s), active_share)


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file. Raises ModelNotFoundError, or InvalidRequestError if it is too large."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InvalidRequestError(f"{path.name} is larger than {MOST_BYTES >> 20} MiB.", "Split it.")
        return path.read_bytes()
    except OSError as error:
        raise ModelNotFoundError(f"{path} cannot be read: {error.strerror}.", "Check the path.") from error


def read_prompts(path: Path) -> list[Prompt]:
    """Return the prompts of a file: one a line, or one JSON object a line with "prompt" and, optionally, "system".

    Raises: as `read_bytes`, and InvalidRequestError for a bad line.
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{path} is not UTF-8 text (byte {error.start}).", "Save it as UTF-8.") from error
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise InvalidRequestError(f"{path} holds no prompt.", "Write one prompt a line.")
    if path.suffix.lower() not in (".jsonl", ".ndjson", ".json") and not lines[0][1].startswith("{"):
        return [Prompt(line) for _, line in lines]
    prompts = []
    for number, line in lines:
        try:
            values = json.loads(line)
            prompt = Prompt(values["prompt"], values.get("system") or "")
            if not (isinstance(prompt.text, str) and isinstance(prompt.system, str) and prompt.text.strip()):
                raise TypeError("no text")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidRequestError(
                f"Line {number} of {path} is no prompt.", 'Write one JSON object a line: {"prompt": "..."}.'
            ) from error
        prompts.append(prompt)
    return prompts
