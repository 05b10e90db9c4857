"""Answers the same prompt twice on this PC: in the chat's mode, then dense.

Both start without a KV cache and with the same seed, so that differences come from skipped neurons. Nothing is stored.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot

from app.chat.answers.mode_rates import MODE_TEXTS
from app.clients.answer_request import Answered, AnswerRequest
from app.clients.engine_client import EngineClient
from app.clients.engine_process import EngineDied
from app.clients.engine_status import Phase
from app.translation import figure, noted, tr, tr_n
from app.user_messages import describe
from engine.service import protocol

LONGEST = 256  # maximum tokens, unless the settings say fewer: enough to see and to measure
MOST_WORDS = 3_000  # of each text; the rest is not compared
ABOUT_AS_FAST = 0.05  # rates that differ by less count as equal
_WORDS = re.compile(r"\S+")


class SideState(StrEnum):
    WAITING = "waiting"  # for the engine or the other side
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"  # by the user; the text so far stays
    FAILED = "failed"


@dataclass(frozen=True)
class Side:
    """One of the two answers. mode: as requested; None: the loaded model's."""

    mode: str | None
    title: str
    state: SideState = SideState.WAITING
    text: str = ""
    result: protocol.GenerationResult | None = None

    @property
    def tok_s(self) -> float | None:
        return self.result.decode_tok_s if self.result is not None else None


class Comparison(QObject):
    """Runs once. `changed` follows every token and state."""

    changed = Signal()
    ended = Signal()

    def __init__(
        self,
        engine: EngineClient,
        request: AnswerRequest,
        loaded_mode: str = "",
        parent: QObject | None = None,
    ) -> None:
        """request: as for an answer in the chat. loaded_mode: what mode None stands for."""
        super().__init__(parent)
        self._engine = engine
        longest = min(request.sampling.get("max_tokens") or LONGEST, LONGEST)
        seed = request.sampling.get("seed")
        limits = {"max_tokens": longest, "seed": random.getrandbits(31) if seed is None else seed}
        self.request = replace(request, sampling={**request.sampling, **limits})
        mode = request.mode
        self.sides = [
            Side(mode, tr(MODE_TEXTS.get(mode or loaded_mode, noted("As set")))),
            Side("dense", tr(MODE_TEXTS["dense"])),
        ]
        self.problem = ""  # why it ended early, in a sentence
        self.is_running = False
        self._now: int | None = None  # index of the running side
        engine.ready.connect(self._advance)
        engine.text.connect(self._text)
        engine.answered.connect(self._answered)
        engine.failed.connect(self._failed)
        engine.died.connect(self._died)
        engine.loaded.connect(self._other_model)
        engine.unloaded.connect(self._other_model)

    def start(self) -> None:
        """Start as soon as the engine is free."""
        self.is_running = True
        self._advance()
        self.changed.emit()

    def stop(self) -> None:
        """Stop; the text so far stays."""
        if not self.is_running:
            return
        running = self._now is not None
        self._end(SideState.STOPPED)
        if running:
            self._engine.stop()

    @Slot()
    def _advance(self) -> None:
        if not self.is_running or self._now is not None or not self._engine.is_ready:
            return
        index = next((i for i, side in enumerate(self.sides) if side.state is SideState.WAITING), None)
        if index is None:
            return
        self._now = index
        self._set(index, state=SideState.RUNNING)
        self._engine.ask(replace(self.request, mode=self.sides[index].mode, fresh=True))

    def _set(self, index: int, **values: Any) -> None:
        self.sides[index] = replace(self.sides[index], **values)
        self.changed.emit()

    # -------------------------------------------------------------- the engine's words

    @property
    def status_text(self) -> str:
        """What is happening, for the line below the texts."""
        if not self.is_running:
            return ""
        if self._now is None:
            return (
                tr("Waiting for the current answer") if self._engine.status.answering else tr("Waiting for the model")
            )
        status = self._engine.status
        word = status.word if status.phase is Phase.READING else tr("Answering")
        return tr(
            "{state}: {side}, {now} of {sides}",
            state=word,
            side=self.sides[self._now].title,
            now=self._now + 1,
            sides=len(self.sides),
        )

    @Slot(str)
    def _text(self, text: str) -> None:
        if self._now is not None:
            self._set(self._now, text=self.sides[self._now].text + text)

    @Slot(object)
    def _answered(self, end: Answered) -> None:
        result = end.result
        if self._now is None or result is None:
            return
        now, self._now = self._now, None
        # Esc in the chat or another model can stop it too.
        state = SideState.STOPPED if result.finish_reason == "cancelled" else SideState.DONE
        self._set(now, state=state, result=result, title=MODE_TEXTS.get(result.mode, self.sides[now].title))
        if state is SideState.STOPPED:
            self._end(SideState.STOPPED)
        elif now == len(self.sides) - 1:
            self._end(SideState.DONE)

    @Slot(object)
    def _failed(self, failed: protocol.Failed) -> None:
        if self._now is not None:
            message = describe(failed, during="answer", model=self._engine.status.model)
            self._fail(f"{message.title}. {message.sentence}")

    @Slot(object)
    def _died(self, died: EngineDied) -> None:
        if self.is_running:
            self._fail(tr("The engine stopped unexpectedly. Compare again once it is back."))

    @Slot()
    def _other_model(self) -> None:
        if self.is_running and any(side.state is not SideState.WAITING for side in self.sides):
            self._fail(tr("The model was changed meanwhile. Compare again with the new one."))

    def _fail(self, why: str) -> None:
        self.problem = why
        self._end(SideState.FAILED)

    def _end(self, state: SideState) -> None:
        self.is_running, self._now = False, None
        for index, side in enumerate(self.sides):
            if side.state in (SideState.WAITING, SideState.RUNNING):
                self._set(index, state=state)
        self.changed.emit()
        self.ended.emit()


# ------------------------------------------------------------------ what came of it


@dataclass(frozen=True)
class Differences:
    """Where two texts differ, as (start, end) in characters of each, and the number of equal words at the beginning."""

    left: tuple[tuple[int, int], ...]
    right: tuple[tuple[int, int], ...]
    same_words: int
    words: int  # in the longer text

    @property
    def are_none(self) -> bool:
        return not self.left and not self.right


def differences(left: str, right: str) -> Differences:
    """Compare two texts by words, up to the first MOST_WORDS words of each."""
    ours, theirs = list(_WORDS.finditer(left))[:MOST_WORDS], list(_WORDS.finditer(right))[:MOST_WORDS]
    a, b = [word.group() for word in ours], [word.group() for word in theirs]
    same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    found: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for kind, i, j, k, n in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        if j > i:
            found[0].append((ours[i].start(), ours[j - 1].end()))
        if n > k:
            found[1].append((theirs[k].start(), theirs[n - 1].end()))
    return Differences(tuple(found[0]), tuple(found[1]), same, max(len(a), len(b)))


def verdict(first: Side, second: Side) -> list[str]:
    """Return the result of two finished sides, one sentence each: the texts, then the speed."""
    said = []
    if first.text and second.text:
        found = differences(first.text, second.text)
        if found.are_none:
            said.append(tr("Both wrote the same words."))
        elif found.same_words == 0:
            said.append(tr("They differ from the first word."))
        else:
            said.append(
                tr_n(
                    "The first word is the same; then they differ.",
                    "The first {n} words are the same; then they differ.",
                    found.same_words,
                    n=figure(found.same_words),
                )
            )
    if first.tok_s and second.tok_s:
        ratio = first.tok_s / second.tok_s
        if abs(ratio - 1) < ABOUT_AS_FAST:
            said.append(tr("Both are about as fast here."))
        else:
            faster, slower = (first, second) if ratio > 1 else (second, first)
            times = max(ratio, 1 / ratio)
            said.append(
                tr(
                    "{faster} is {times} times as fast as {slower} here.",
                    faster=faster.title,
                    times=figure(times, ".1f"),
                    slower=slower.title.lower(),
                )
            )
    return said
