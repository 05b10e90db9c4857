"""The first title of a chat, made from its first exchange: by the model while nobody waits for it, where that costs
next to nothing and gives something sensible, else from the words themselves. A title that a person gave stays.

It decides what a chat is called and shows nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer

from app.chat.chat_memory import ChatMemory
from app.chat.conversation import TITLE_LENGTH, Message, MessageState, Role, title_from
from app.clients.engine_client import EngineClient
from engine.service import protocol

if TYPE_CHECKING:
    from app.chat.chat_controller import ChatController

ASK_AFTER_MS = 1500  # after the answer: whoever writes on at once is not kept waiting
MOST_TOKENS = 16
MOST_WORDS = 8
LONGEST_S = 3.0  # that asking may take on this machine
FEWEST_PARAMETERS = 500_000_000  # smaller models do not follow such a request
PROMPT_TOKENS = 40  # of the request itself; what was said is in the KV cache still
REQUEST = "Give this chat a title of two to five words, in the language of my first message. Say the title alone."

_OPENERS = re.compile(
    r"^(?:(?:hi|hello|hey|hallo|good (?:morning|evening|day)|guten (?:tag|morgen)|dear \w+)\b[\s,!.]*)?"
    r"(?:please\s+)?(?:(?:can|could|would|will) you (?:please )?(?:(?:tell|show|explain to|help) me (?:with )?)?"
    r"|i(?: would|'d) like (?:you )?to (?:know )?|i want (?:you )?to (?:know )?|tell me |bitte )?",
    re.IGNORECASE,
)


def title_of(exchange: Sequence[Message]) -> str:
    """A title from the words themselves: what was asked, without greeting and courtesy; of a mere greeting, what came
    back."""
    question = next((m.text for m in exchange if m.role is Role.USER), "")
    whole = title_from(question)
    said = re.sub(r"```.*?(```|\Z)", "", question, flags=re.DOTALL)  # what is shown as code names nothing
    line = next((part.strip(" #>*-\t") for part in said.splitlines() if part.strip(" #>*-\t`")), "")
    short = _OPENERS.sub("", line, count=1).strip()
    if not short:  # a greeting alone
        answer = next((m.text for m in exchange if m.role is Role.ASSISTANT), "")
        heading = re.search(r"^#{1,6}\s+(.+)$", answer, re.MULTILINE)
        return title_from(heading[1]) if heading else whole
    if short != line:
        short = short.rstrip("?") or line  # what follows "could you tell me" is no question
    return title_from(short[0].upper() + short[1:]) if short[0].islower() else title_from(short)


def tidied(said: str, exchange: Sequence[Message]) -> str:
    """The title in what the model said; empty where it said none, or one that has nothing to do with the exchange."""
    lines = [line.strip() for line in said.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    title = re.sub(r"^(?:title|titel|标题)\s*[:：]\s*", "", lines[0], flags=re.IGNORECASE)
    title = " ".join(title.strip(" \t\"'“”„«»*_#`").rstrip(".。!").split()).strip("\"'“”„«»*_`")
    if not title or len(title) > TITLE_LENGTH or len(title.split()) > MOST_WORDS or "<" in title:
        return ""
    return title if _concerns(title, " ".join(m.text for m in exchange)) else ""


def _concerns(title: str, said: str) -> bool:
    """Whether a good part of a title's words, or of its pairs of letters where there are no words, was said."""
    title, said = title.casefold(), said.casefold()
    if any(unicodedata.east_asian_width(letter) == "W" for letter in title):
        parts = [title[i : i + 2] for i in range(len(title) - 1)]
    else:
        parts = [word[:5] for word in re.findall(r"\w+", title) if len(word) >= 4]  # the beginning: "sorts", "sorting"
    return bool(parts) and sum(part in said for part in parts) * 2 >= len(parts)


class ChatTitles(QObject):
    """One an engine. It hears of every answer that ends by itself."""

    def __init__(self, engine: EngineClient, memory: ChatMemory, chat: ChatController) -> None:
        super().__init__()
        self._engine, self._memory, self._chat = engine, memory, chat
        self._running = ""  # the chat that is being answered
        self._parameters = 0  # of the model that is loaded
        self._waiting: dict[str, str] = {}  # by chat: the title that was given to it here and may be bettered
        self._timer = QTimer(self, singleShot=True, interval=ASK_AFTER_MS)
        self._timer.timeout.connect(self._ask)
        engine.loaded.connect(self._take_model)
        engine.status_changed.connect(self._look)
        chat.running_changed.connect(self._answers)

    def _take_model(self, info: protocol.LoadedModelInfo) -> None:
        self._parameters = info.parameters

    def _answers(self, conversation_id: str | None) -> None:
        ended, self._running = self._running, conversation_id or ""
        if ended:
            self._answered(ended)

    def _answered(self, conversation_id: str) -> None:
        chat, exchange = self._memory.conversation(conversation_id), self._memory.branch_of(conversation_id)
        if chat is None or exchange is None or [m.role for m in exchange] != [Role.USER, Role.ASSISTANT]:
            return
        if chat.title != title_from(exchange[0].text):
            return  # it was named by hand
        if exchange[1].state not in (MessageState.COMPLETE, MessageState.LENGTH):
            return
        title = title_of(exchange)
        if title != chat.title:
            self._chat.rename(conversation_id, title)
        if self._is_cheap(exchange[1]):
            self._waiting[conversation_id] = title
            self._timer.start()

    def _is_cheap(self, answer: Message) -> bool:
        stats = answer.stats or {}
        if stats.get("server"):  # asking this PC would have it read the whole chat first
            return False
        reading, writing = stats.get("prefill_tok_s"), stats.get("decode_tok_s")
        if self._parameters < FEWEST_PARAMETERS or not reading or not writing:
            return False
        if stats.get("context_used", 0) + 2 * (PROMPT_TOKENS + MOST_TOKENS) > stats.get("context_total", 0):
            return False  # to make room, something of the chat would have to go
        return bool(PROMPT_TOKENS / reading + MOST_TOKENS / writing <= LONGEST_S)

    def _look(self) -> None:
        """Somebody asks the engine for something: titles wait until it rests again."""
        if self._engine.status.working:
            self._timer.stop()
        elif self._waiting and not self._timer.isActive():
            self._timer.start()

    def _ask(self) -> None:
        if not self._waiting or not self._engine.is_ready:
            return
        conversation_id, title = self._waiting.popitem()
        exchange = self._memory.branch_of(conversation_id) or []
        if len(exchange) != 2 or self._chat.open_conversation != conversation_id:
            return  # it went on, or another one is shown: asking would no longer be cheap
        request = self._chat.next_request(REQUEST)
        if request.place is not None:
            return  # a chat that is sent elsewhere is named by its words: nothing is sent that nobody wrote
        request = replace(request, sampling={"temperature": 0.0, "max_tokens": MOST_TOKENS})
        self._engine.ask_aside(request, partial(self._take, conversation_id, title))

    def _take(self, conversation_id: str, given: str, said: str) -> None:
        chat, exchange = self._memory.conversation(conversation_id), self._memory.branch_of(conversation_id)
        title = tidied(said, (exchange or [])[:2])
        if chat is not None and title and chat.title == given:  # nobody has named it meanwhile
            self._chat.rename(conversation_id, title)
