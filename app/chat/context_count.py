"""Counts the tokens of the next message with the engine, shortly after a change.

It is silent while an answer is running: the engine then reports the figures itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chat.store.conversation import Attachment, content_of
from app.clients.answer_request import AnswerRequest
from app.clients.engine_client import EngineClient
from app.documents.draft_attachments import DraftAttachments, Measure

if TYPE_CHECKING:
    from engine.service.protocol import CountResult

AFTER_MS = 200  # pause in typing before counting
AFTER_MS_A_MESSAGE = 0.1  # more for each message: handing over 10,000 messages takes the window 60 ms


MakePrompt = Callable[[str], AnswerRequest]  # the request that would be sent; for a text of the user


class ContextCount(QObject):
    """Counts the draft with all before it: first how much of the attached texts fits, then the prompt with that."""

    counted = Signal(object)  # CountResult; None: unknown

    def __init__(
        self,
        engine: EngineClient,
        draft: DraftAttachments,
        words: Callable[[], str],
        prompt: MakePrompt,
        is_elsewhere: Callable[[], bool] = lambda: False,
    ) -> None:
        """words: the text typed so far. is_elsewhere: whether the chat is sent to a server, whose context cannot be
        counted here. Deleted with the draft."""
        super().__init__(draft)
        self._engine = engine
        self._draft = draft
        self._words = words
        self._prompt = prompt
        self._is_elsewhere = is_elsewhere
        self._measuring: list[str] | None = None  # the texts that are being measured
        self._measured: list[str] = []
        self._before: AnswerRequest | None = None  # a prompt with the same messages before the draft
        self._counting: AnswerRequest | None = None  # the prompt that was counted last, with another draft
        self._timer = QTimer(self, singleShot=True, interval=AFTER_MS)
        self._timer.timeout.connect(self._ask)
        draft.changed.connect(self._texts_changed)
        engine.counted.connect(self._on_counted)
        engine.ready.connect(self.begin_anew)

    @Slot()
    def ask_soon(self) -> None:
        """Count again soon: the draft changed."""
        messages = len(self._before.messages) if self._before is not None else 0
        self._timer.start(AFTER_MS + int(AFTER_MS_A_MESSAGE * messages))

    @Slot()
    def begin_anew(self) -> None:
        """Count again soon: the messages before the draft, or the settings, changed."""
        self._before = None
        self.ask_soon()

    @Slot()
    def clear(self) -> None:
        """Count again soon: another chat was opened."""
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
            return  # `ready` calls this again
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
        self._counting = before
        self._engine.count(replace(before, messages=messages), list(texts))

    @Slot(object)
    def _on_counted(self, result: CountResult | None) -> None:
        if result is not None and result.dropped_messages and self._counting is not None:
            dropped = self._counting.n_of_chat(result.dropped_at, result.dropped_messages)
            result = replace(result, dropped_messages=dropped)
        texts, self._measuring = self._measuring, None
        if self._is_elsewhere():  # requested before the server was chosen
            return
        if texts is None or result is None:
            self.counted.emit(result)
            return
        figures = zip(result.text_tokens, result.text_kept_tokens, result.text_kept_chars, strict=True)
        self._draft.measure(texts, [Measure(*figure) for figure in figures])
        if self._draft.texts != texts:  # other texts are attached now
            self.ask_soon()
        elif self._engine.is_ready:
            self._count([sent for item in self._draft.items if (sent := item.as_sent()) is not None], [])
