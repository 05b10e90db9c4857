"""First titles of chats, from their first exchange: by the model while it is idle if that is cheap and the result makes
sense, else from the message itself. A title that the user gave stays."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer

from app.chat.chat_memory import ChatMemory
from app.chat.store.conversation import TITLE_LENGTH, Message, MessageState, Role, title_from
from app.clients.engine_client import EngineClient
from engine.service import protocol
from engine.text.thoughts import spoken

if TYPE_CHECKING:
    from app.chat.chat_controller import ChatController

ASK_AFTER_MS = 1500  # after the answer, so that the next message does not wait
MOST_TOKENS = 16
MOST_WORDS = 8
LONGEST_S = 3.0  # for a title on this machine
FEWEST_PARAMETERS = 500_000_000  # smaller models do not follow the request
PROMPT_TOKENS = 40  # of the request; the chat itself is still in the KV cache
REQUEST = "Give this chat a title of two to five words, in the language of my first message. Say the title alone."

_OPENERS = re.compile(
    r"^(?:(?:hi|hello|hey|hallo|good (?:morning|evening|day)|guten (?:tag|morgen)|dear \w+)\b"
    r"(?: (?:there|again|everyone|all)\b)?[\s,!.]*)?"
    r"(?:please\s+)?(?:(?:can|could|would|will) you (?:please )?(?:(?:tell|show|explain to|help) me (?:with )?)?"
    r"|i(?: would|'d) like (?:you )?to (?:know )?|i want (?:you )?to (?:know )?|tell me |bitte )?",
    re.IGNORECASE,
)


def title_of(exchange: Sequence[Message]) -> str:
    """Return a title from the question, without greeting and courtesy; from the answer if the question is only a
    greeting."""
    question = next((m.text for m in exchange if m.role is Role.USER), "")
    whole = title_from(question)
    said = re.sub(r"```.*?(```|\Z)", "", question, flags=re.DOTALL)  # code makes no title
    line = next((part.strip(" #>*-\t") for part in said.splitlines() if part.strip(" #>*-\t`")), "")
    short = _OPENERS.sub("", line, count=1).strip()
    if not short:  # only a greeting
        answer = next((m.text for m in exchange if m.role is Role.ASSISTANT), "")
        heading = re.search(r"^#{1,6}\s+(.+)$", answer, re.MULTILINE)
        return title_from(heading[1]) if heading else whole
    if short != line:
        short = short.rstrip("?") or line  # what follows "could you tell me" is not a question
    return title_from(short[0].upper() + short[1:]) if short[0].islower() else title_from(short)


def tidied(said: str, exchange: Sequence[Message]) -> str:
    """Return the title in the model's answer; empty if there is none or it has nothing to do with the exchange."""
    lines = [line.strip() for line in said.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    title = re.sub(r"^(?:title|titel|标题)\s*[:：]\s*", "", lines[0], flags=re.IGNORECASE)
    title = " ".join(title.strip(" \t\"'“”„«»*_#`").rstrip(".。!").split()).strip("\"'“”„«»*_`")
    if not title or len(title) > TITLE_LENGTH or len(title.split()) > MOST_WORDS or "<" in title:
        return ""
    return title if _concerns(title, " ".join(m.text for m in exchange)) else ""


def _concerns(title: str, said: str) -> bool:
    """Return whether at least half of a title's words, or pairs of characters in scripts without spaces, occur in the
    chat."""
    title, said = title.casefold(), said.casefold()
    if any(unicodedata.east_asian_width(letter) == "W" for letter in title):
        parts = [title[i : i + 2] for i in range(len(title) - 1)]
    else:
        parts = [word[:5] for word in re.findall(r"\w+", title) if len(word) >= 4]  # the beginning: "sorts", "sorting"
    return bool(parts) and sum(part in said for part in parts) * 2 >= len(parts)


class ChatTitles(QObject):
    """One for an engine. It sees every answer that ends by itself."""

    def __init__(self, engine: EngineClient, memory: ChatMemory, chat: ChatController) -> None:
        super().__init__()
        self._engine, self._memory, self._chat = engine, memory, chat
        self._running = ""  # the chat that is being answered
        self._parameters = 0  # of the loaded model
        self._waiting: dict[str, str] = {}  # by chat: the title set here, which the model may improve
        self._timer = QTimer(self, singleShot=True, interval=ASK_AFTER_MS)
        self._timer.timeout.connect(self._ask)
        engine.loaded.connect(self._take_model)
        engine.status_changed.connect(self._postpone)
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
            return  # the user named it
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
        if stats.get("server"):  # this PC would have to read the whole chat first
            return False
        reading, writing = stats.get("prefill_tok_s"), stats.get("decode_tok_s")
        if self._parameters < FEWEST_PARAMETERS or not reading or not writing:
            return False
        if stats.get("context_used", 0) + 2 * (PROMPT_TOKENS + MOST_TOKENS) > stats.get("context_total", 0):
            return False  # messages of the chat would have to be dropped
        return bool(PROMPT_TOKENS / reading + MOST_TOKENS / writing <= LONGEST_S)

    def _postpone(self) -> None:
        """Postpone titles while the engine is working."""
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
            return  # it continued, or another chat is open: no longer cheap
        request = self._chat.next_request(REQUEST)
        if request.place is not None:
            return  # nothing is sent to a server that the user did not write
        asked = {"temperature": 0.0, "max_tokens": MOST_TOKENS, "thought_tokens": 0}
        kept = {name: value for name, value in request.sampling.items() if name == "thinking"}  # the prompt stays
        request = replace(request, sampling=kept | asked)
        self._engine.ask_aside(request, partial(self._take, conversation_id, title))

    def _take(self, conversation_id: str, given: str, said: str) -> None:
        chat, exchange = self._memory.conversation(conversation_id), self._memory.branch_of(conversation_id)
        title = tidied(spoken(said), (exchange or [])[:2])
        if chat is not None and title and chat.title == given:  # the user has not named it since
            self._chat.rename(conversation_id, title)
