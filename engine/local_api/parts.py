"""The parts of an answer: thoughts, text, and calls of tools with their arguments, in the order of their arrival."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.session.generate import StopScanner
from engine.text.thoughts import ReplySplitter
from engine.tool_calls.call_reader import ArgumentsPart, CallPart, CallReader, TextPart


@dataclass(frozen=True)
class ThoughtPart:
    """More of the thought before the answer."""

    text: str


Part = ThoughtPart | TextPart | CallPart | ArgumentsPart


class PartsReader:
    """Reads the parts of one answer. calls: reads calls; None: there are none.

    White space alone before a call is left out. stops: texts that end the answer, outside of calls. stop_text: the one
    that did.
    """

    def __init__(self, calls: CallReader | None, stops: tuple[str, ...] = ()) -> None:
        self._splitter, self._calls = ReplySplitter(), calls
        self._scanner = StopScanner(stops)
        self._scanned: type[TextPart | ThoughtPart] = TextPart  # the kind of the text that the scanner holds back
        self.stop_text = ""
        self._blank, self._has_text = "", False  # the text so far, as long as it is white space alone

    @property
    def is_thinking(self) -> bool:
        """Whether a thought is open."""
        return self._splitter.is_thinking

    @property
    def thought_mark(self) -> str:
        """The mark that began the last thought, as the model wrote it."""
        return self._splitter.opening_mark

    @property
    def has_called(self) -> bool:
        """Whether the answer has calls, all of which have ended."""
        return self._calls is not None and self._calls.n_calls > 0 and self._calls.is_complete

    def append(self, text: str) -> tuple[Part, ...]:
        return tuple(self._until_stop(self._parts(*self._splitter.append(text))))

    def finish(self, is_cut: bool) -> tuple[Part, ...]:
        """End the answer. Return what was held back. is_cut: as in CallReader.finish."""
        parts = [*self._parts(*self._splitter.finish())]
        parts += [] if self._calls is None else self._without_blank(self._calls.finish(is_cut))
        if self._blank and not self._has_called:
            parts.append(TextPart(self._blank))
        return (*self._until_stop(parts), *self._flushed())

    @property
    def _has_called(self) -> bool:
        return self._calls is not None and self._calls.n_calls > 0

    def _parts(self, thought: str, answer: str) -> Iterable[Part]:
        if thought:
            yield ThoughtPart(thought)
        if self._calls is not None:
            yield from self._without_blank(self._calls.append(answer)) if answer else ()
        elif answer:
            yield TextPart(answer)

    def _until_stop(self, parts: Iterable[Part]) -> Iterable[Part]:
        for part in parts:
            if self._scanner.hit:
                return
            if not isinstance(part, TextPart | ThoughtPart):
                yield from self._flushed()
                yield part
                continue
            if type(part) is not self._scanned:
                yield from self._flushed()
                self._scanned = type(part)
            if text := self._scanner.push(part.text):
                yield self._scanned(text)
            self.stop_text = self._scanner.found

    def _flushed(self) -> list[Part]:
        text = "" if self._scanner.hit else self._scanner.flush()
        return [self._scanned(text)] if text else []

    def _without_blank(self, parts: Iterable[Part]) -> Iterable[Part]:
        for part in parts:
            if not isinstance(part, TextPart) or self._has_text:
                yield part
            elif (self._blank + part.text).strip():
                self._has_text = True
                yield TextPart(self._blank + part.text)
                self._blank = ""
            else:
                self._blank += part.text


@dataclass(frozen=True)
class WholeCall:
    """A call whose arguments are complete JSON unless the answer was cut off."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class WholeAnswer:
    thought: str = ""
    text: str = ""
    calls: tuple[WholeCall, ...] = ()

    @classmethod
    def of(cls, parts: Iterable[Part]) -> WholeAnswer:
        thought, text, calls = list[str](), list[str](), list[tuple[CallPart, list[str]]]()
        for part in parts:
            if isinstance(part, CallPart):
                calls.append((part, []))
            elif isinstance(part, ArgumentsPart):
                calls[-1][1].append(part.text)
            else:
                (thought if isinstance(part, ThoughtPart) else text).append(part.text)
        whole = (WholeCall(call.id, call.name, "".join(arguments)) for call, arguments in calls)
        return cls("".join(thought), "".join(text), tuple(whole))

    @property
    def parts(self) -> Iterable[Part]:
        """Yield the parts again, each in one."""
        if self.thought:
            yield ThoughtPart(self.thought)
        if self.text:
            yield TextPart(self.text)
        for call in self.calls:
            yield CallPart(call.id, call.name)
            yield ArgumentsPart(call.arguments)
