"""All tools that chats can switch on, and their calls in the background."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal, Slot

from app.tools import model_texts
from app.tools.questions import OpenQuestion, Question, Reply
from app.tools.tool import LONGEST_RESULT, Scope, Tool, ToolResult, ToolSource

log = logging.getLogger(__name__)

Ended = Callable[[ToolResult, float], None]  # gets the result, and the seconds that the call took


class ToolBox(QObject):
    """The tools of several sources. Used on the main thread; each call runs in a thread of its own."""

    changed = Signal()  # the tools
    asked = Signal(object)  # an OpenQuestion; who shows it replies
    _finished = Signal(object)  # a callable for the main thread

    def __init__(self, sources: Sequence[ToolSource] = ()) -> None:
        super().__init__()
        self.offer(sources)
        self._finished.connect(self._call, Qt.ConnectionType.QueuedConnection)

    def offer(self, sources: Sequence[ToolSource]) -> None:
        """Set the sources. The caller tells of the change."""
        self._sources = tuple(sources)

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools that can be called now, those of the first source first; of equal names the first."""
        found: dict[str, Tool] = {}
        for source in self._sources:
            for tool in source.tools():
                found.setdefault(tool.name, tool)
        return tuple(found.values())

    def find(self, name: str) -> Tool | None:
        """Return the tool with that name; None if it cannot be called now."""
        return next((tool for tool in self.tools() if tool.name == name), None)

    def definitions(self, names: Sequence[str]) -> tuple[dict[str, Any], ...]:
        """Return the definitions of the tools with these names that can be called now."""
        return tuple(tool.definition for tool in self.tools() if tool.name in names)

    def scope(self, name: str, arguments: Mapping[str, Any]) -> Scope:
        """Return what a lasting consent to a call covers, of a tool that `find` returns."""
        return self._source_of(name).scope(name, arguments)

    def run(self, name: str, arguments: Mapping[str, Any], is_cancelled: Callable[[], bool], then: Ended) -> None:
        """Run a call of a tool that `find` returns. `then` is called on the main thread, also after a failure."""
        source = self._source_of(name)

        def work() -> None:
            began = time.monotonic()
            try:
                result = source.call(name, arguments, is_cancelled)
            except Exception:
                log.exception("the tool %s failed", name)
                result = ToolResult(model_texts.failed(name), is_error=True)
            text = model_texts.cut(result.text, LONGEST_RESULT)
            seconds = time.monotonic() - began
            self._finished.emit(lambda: then(ToolResult(text, result.is_error), seconds))

        threading.Thread(target=work, name=f"tool {name}", daemon=True).start()

    def ask(self, question: Question) -> Reply:
        """Put a server's question to the user. Blocks, so it is called in a thread of its own."""
        opened = OpenQuestion(question)
        self._finished.emit(lambda: self.asked.emit(opened))
        return opened.wait()

    def tell_changed(self) -> None:
        """Emit `changed` on the main thread. Thread-safe."""
        self._finished.emit(self.changed.emit)

    @Slot(object)
    def _call(self, ending: Callable[[], None]) -> None:
        ending()

    def _source_of(self, name: str) -> ToolSource:
        return next(source for source in self._sources if any(tool.name == name for tool in source.tools()))
