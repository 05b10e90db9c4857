"""How many tokens the next message would take: asked of the engine itself, a moment after something has changed.

It decides nothing and shows nothing. While an answer is under way it is silent: the engine then tells by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chat.attachments import content_of
from app.chat.conversation import Attachment
from app.chat.draft_attachments import DraftAttachments, Measure
from app.clients.engine_client import EngineClient
from engine.service.protocol import CountResult

AFTER_MS = 200  # of quiet: typing is not to keep the engine busy
AFTER_MS_A_MESSAGE = 0.1  # more: to hand 10,000 messages over takes the window 60 ms


class Prompt(Protocol):
    """What would be asked of the engine; the last message is the one that is being written."""

    @property
    def messages(self) -> list[dict[str, str]]: ...

    @property
    def sampling(self) -> Mapping[str, Any]: ...

    @property
    def overflow(self) -> str: ...


MakePrompt = Callable[[str], Prompt]  # for words of the person's, as the model reads them


class ContextCount(QObject):
    """Counts the draft with everything before it. First how much of the attached texts there is room for, then the
    prompt with just that in it."""

    counted = Signal(object)  # CountResult, or None while it is not known

    def __init__(
        self,
        engine: EngineClient,
        draft: DraftAttachments,
        words: Callable[[], str],
        prompt: MakePrompt,
        is_elsewhere: Callable[[], bool] = lambda: False,
    ) -> None:
        """words: what is typed so far. is_elsewhere: whether the chat is sent to a server, whose context cannot be
        counted here. It goes when the draft goes."""
        super().__init__(draft)
        self._engine = engine
        self._draft = draft
        self._words = words
        self._prompt = prompt
        self._is_elsewhere = is_elsewhere
        self._measuring: list[str] | None = None  # the texts whose room is being asked for
        self._measured: list[str] = []
        self._before: Prompt | None = None  # with another last message: what stands before it was the same
        self._timer = QTimer(self, singleShot=True, interval=AFTER_MS)
        self._timer.timeout.connect(self._ask)
        draft.changed.connect(self._texts_changed)
        engine.counted.connect(self._hear)
        engine.ready.connect(self.begin_anew)

    @Slot()
    def ask_soon(self) -> None:
        """The message that is being written has changed."""
        messages = len(self._before.messages) if self._before is not None else 0
        self._timer.start(AFTER_MS + int(AFTER_MS_A_MESSAGE * messages))

    @Slot()
    def begin_anew(self) -> None:
        """What stands before it has changed, or how it is asked."""
        self._before = None
        self.ask_soon()

    @Slot()
    def forget(self) -> None:
        """Another chat: what was known is of the one before."""
        self.counted.emit(None)
        self.begin_anew()

    def _texts_changed(self) -> None:
        if self._draft.texts != self._measured:
            self.ask_soon()

    def _ask(self) -> None:
        if self._is_elsewhere():
            self._measuring, self._measured = None, self._draft.texts
            self._draft.measure(self._measured, [Measure(0, 0, len(text)) for text in self._measured])
            self.counted.emit(None)
            return
        if not self._engine.is_ready:
            return  # `ready` asks again
        texts = self._draft.texts
        self._measuring = texts or None
        self._measured = texts
        self._count([replace(a, text="") for a in self._attached()] if texts else [], texts)

    def _attached(self) -> list[Attachment]:
        return [item.attachment for item in self._draft.items if item.attachment is not None]

    def _count(self, attached: Sequence[Attachment], texts: Sequence[str]) -> None:
        if self._before is None:
            self._before = self._prompt("")
        before, words = self._before, content_of(self._words(), attached)
        messages = [*before.messages[:-1], {"role": "user", "content": words}]
        self._engine.count(messages, dict(before.sampling), before.overflow, list(texts))

    @Slot(object)
    def _hear(self, result: CountResult | None) -> None:
        texts, self._measuring = self._measuring, None
        if self._is_elsewhere():  # asked before it was chosen
            return
        if texts is None or result is None:
            self.counted.emit(result)
            return
        figures = zip(result.text_tokens, result.text_kept_tokens, result.text_kept_chars, strict=True)
        self._draft.measure(texts, [Measure(*figure) for figure in figures])
        if self._draft.texts != texts:  # others are attached by now
            self.ask_soon()
        elif self._engine.is_ready:
            self._count([sent for item in self._draft.items if (sent := item.as_sent()) is not None], [])
