"""Turns the messages of another program into a chat of Hearth. Shared by all readers.

A reader lists its messages as Nodes in any order; `whole_chat` orders them as a tree, puts the thoughts, texts and
tool calls of one answer together, and gives ids. A chat's id is a hash of the program, its own ids and the texts, so
the same export gives the same id again, and a chat that was continued since gives another.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from app.chat.store.chat_file_check import (
    LAST_TIME,
    LONGEST_PLAIN,
    LONGEST_TEXT,
    LONGEST_TITLE,
    MOST_ATTACHMENTS,
    MOST_CALLS,
    MOST_MESSAGES,
)
from app.chat.store.conversation import (
    Attachment,
    AttachmentKind,
    CallState,
    Conversation,
    Message,
    MessageState,
    Role,
    ToolCall,
    WholeChat,
    title_from,
)

MOST_INSTRUCTIONS = 20_000  # characters: MAX_INSTRUCTIONS of a persona
DEEPEST_ARGUMENTS = 12
_THOUGHT = ("<think>", "</think>")


class SkippedChatError(Exception):
    """A chat that is not imported. why: "empty", "damaged" or "large"."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Text(NamedTuple):
    text: str


class Thought(NamedTuple):
    text: str


class Call(NamedTuple):
    """A call of a tool. id: by which its result names it; may be empty."""

    id: str
    name: str
    arguments: Any


class Result(NamedTuple):
    """The result of a call: of that id, else of the last call of that name, else of the last call."""

    id: str
    name: str
    text: str
    failed: bool = False


Piece = Text | Thought | Call | Result


@dataclass(slots=True)
class Node:
    """A message of another program.

    parent: the id of the message before it; "": none. role: "user", "assistant" (also for results of tools) or "" for
    one that is passed over. stats: of the answer, as in GenerationResult.
    """

    id: str
    parent: str
    role: str
    time: float | None = None
    pieces: list[Piece] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    state: MessageState = MessageState.COMPLETE


@dataclass(slots=True)
class Head:
    """The facts about a chat besides its messages. id: in its program; "" if it has none there."""

    program: str
    id: str
    title: str = ""
    created: float | None = None
    updated: float | None = None
    pinned: bool = False
    archived: bool = False
    instructions: str = ""


class LeftOut:
    """Counts the parts of messages that are not text, and makes the marks that stand in their place.

    The marks are English in every language: they are part of the chat, and models read them.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def picture(self, name: Any = "") -> Text:
        return self._mark("pictures", "Picture", name)

    def audio(self, name: Any = "") -> Text:
        return self._mark("recordings", "Recording", name)

    def video(self, name: Any = "") -> Text:
        return self._mark("recordings", "Video", name)

    def file(self, name: Any = "") -> Text:
        return self._mark("files", "File", name)

    def other(self, name: Any = "") -> Text:
        return self._mark("others", "Part", name)

    def _mark(self, kind: str, word: str, name: Any) -> Text:
        self.counts[kind] += 1
        said = " ".join(string(name)[:200].replace("]", ")").split())
        return Text(f"[{word} left out: {said}]" if said else f"[{word} left out]")


# --- values of any type


def string(value: Any) -> str:
    """Return a text; "" for a value of another type."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> dict[str, Any]:
    """Return an object; an empty one for a value of another type."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """Return a list; an empty one for a value of another type."""
    return value if isinstance(value, list) else []


def objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in sequence(value) if isinstance(one, dict)]


def seconds(value: Any) -> float | None:
    """Return a time in s since the epoch: from s, ms, µs or ns, or from text in ISO 8601. None: it is none."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        return _in_range((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    while found > 1e11 and math.isfinite(found):  # in s, that is the year 5138
        found /= 1000
    return _in_range(found)


def _in_range(value: float) -> float | None:
    return value if 0 < value < LAST_TIME else None


def attachment(name: Any, text: str, kind: AttachmentKind = "text") -> Attachment:
    """Return an attached text. A name that ends in .pdf says that the text is of a PDF."""
    said = " ".join(string(name)[:200].split())
    if kind == "text" and said.lower().endswith(".pdf"):
        kind = "pdf"
    return Attachment(said or "Pasted text", text, kind if said else "pasted")


# --- the chat


def dated(chat: WholeChat, at: float) -> WholeChat:
    """Return a chat that has no time of its own with that one, in s since the epoch; any other as it is."""
    if chat.conversation.created_at:
        return chat
    conversation = replace(chat.conversation, created_at=at, updated_at=max(at, chat.conversation.updated_at))
    return WholeChat(conversation, tuple(replace(m, created_at=m.created_at or at) for m in chat.messages))


def whole_chat(head: Head, nodes: Iterable[Node], current: str = "") -> WholeChat:
    """Return a chat; with times of 0 if none is known.

    current: the id of the last node of the shown branch; "": the newest. Raises SkippedChatError.
    """
    ordered, parents = _ordered(_unique(nodes))
    nearest = {"": ""}  # the node itself, or the one before it if it is passed over
    for node in ordered:
        nearest[node.id] = node.id if node.role and (node.pieces or node.attachments) else nearest[parents[node.id]]
    said = [node for node in ordered if nearest[node.id] == node.id]
    above = {node.id: nearest[parents[node.id]] for node in said}
    children = Counter(above.values())
    created = head.created or min((n.time for n in said if n.time), default=0.0) or head.updated or 0.0
    drafts = _Drafts(created)
    for node in said:
        drafts.add(node, above[node.id], children[above[node.id]] == 1)
    return _identified(head, drafts, nearest.get(current, ""), created)


def _unique(nodes: Iterable[Node]) -> dict[str, Node]:
    """Return nodes by id. Of two with the same id, the later one gets another."""
    found: dict[str, Node] = {}
    for node in nodes:
        if node.id in found or not node.id:
            node.id = f"{node.id}#{len(found)}"
        found[node.id] = node
    if len(found) > MOST_MESSAGES:
        raise SkippedChatError("large")
    return found


def _ordered(nodes: Mapping[str, Node]) -> tuple[list[Node], dict[str, str]]:
    """Return the nodes, parents first, and the parent of each, "" for a first one.

    A node whose parent is missing is a first one. Of nodes that are each other's parents, the first in the file is.
    """
    below: dict[str, list[Node]] = {}
    firsts: list[Node] = []
    for node in nodes.values():
        if node.parent in nodes:
            below.setdefault(node.parent, []).append(node)
        else:
            firsts.append(node)
    ordered: list[Node] = []
    parents: dict[str, str] = {}
    rest = iter(nodes.values())
    while True:
        waiting = [(node, "") for node in reversed(firsts)]
        while waiting:
            node, parent = waiting.pop()
            if node.id in parents:
                continue
            parents[node.id] = parent
            ordered.append(node)
            following = below.get(node.id, [])
            if len(following) > 1:
                following = sorted(following, key=lambda one: one.time or 0.0)
            waiting += [(one, node.id) for one in reversed(following)]
        if len(ordered) == len(nodes):
            return ordered, parents
        firsts = [next(node for node in rest if node.id not in parents)]  # of a cycle


@dataclass(slots=True)
class _Draft:
    """A message of Hearth in the making. parent: its index; -1: none."""

    key: str
    parent: int
    role: Role
    time: float
    thoughts: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    results: list[Result | None] = field(default_factory=list)  # of each call
    attachments: list[Attachment] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    state: MessageState = MessageState.COMPLETE

    def text(self) -> str:
        said = "\n\n".join(self.texts)
        if not self.thoughts:
            return said
        thought = "\n\n".join(self.thoughts).replace(_THOUGHT[1], "")
        return f"{_THOUGHT[0]}\n{thought}\n{_THOUGHT[1]}\n\n{said}"


class _Drafts:
    """The messages of a chat, in order. An answer continues while one node of an assistant follows another."""

    def __init__(self, created: float) -> None:
        self.all: list[_Draft] = []
        self._ends: dict[str, int] = {}  # the last message of each node
        self._time = created

    def end_of(self, node_id: str) -> int:
        return self._ends.get(node_id, -1)

    def add(self, node: Node, parent: str, is_only_child: bool) -> None:
        at = self.end_of(parent)
        time = node.time or (self.all[at].time if at >= 0 else self._time)
        if node.role == "user":
            at = self._begin(_Draft(node.id, at, Role.USER, time, attachments=node.attachments))
            self.all[at].texts = [piece.text for piece in node.pieces if isinstance(piece, Text) and piece.text.strip()]
        else:
            if at < 0 or not is_only_child or self.all[at].role is Role.USER:
                at = self._begin(_Draft(node.id, at, Role.ASSISTANT, time))
            for n, piece in enumerate(node.pieces):
                at = self._feed(at, piece, f"{node.id}/{n}", time)
            draft = self.all[at]
            draft.stats = {**draft.stats, **node.stats}
            if node.state is not MessageState.COMPLETE:
                draft.state = node.state
        self._ends[node.id] = at

    def _begin(self, draft: _Draft) -> int:
        self.all.append(draft)
        return len(self.all) - 1

    def _feed(self, at: int, piece: Piece, key: str, time: float) -> int:
        """Add a part to an answer. Returns the answer's last message: a call and what follows it are two."""
        draft = self.all[at]
        match piece:
            case Text(text) | Thought(text):
                if not text.strip():
                    return at
                if draft.calls:
                    at = self._begin(_Draft(key, at, Role.ASSISTANT, time, stats=_who(draft.stats)))
                    draft = self.all[at]
                (draft.texts if isinstance(piece, Text) else draft.thoughts).append(text.strip("\n"))
            case Call():
                if draft.calls and all(draft.results):  # the model has read them before it calls again
                    at = self._begin(_Draft(key, at, Role.ASSISTANT, time, stats=_who(draft.stats)))
                    draft = self.all[at]
                draft.calls.append(piece)
                draft.results.append(None)
            case Result():
                at = self._answer(at, piece)
        return at

    def _answer(self, at: int, result: Result) -> int:
        draft = self.all[at]
        waiting = [n for n, known in enumerate(draft.results) if known is None]
        fitting = (
            [n for n in waiting if result.id and draft.calls[n].id == result.id]
            or [n for n in waiting if not (result.id and draft.calls[n].id) and draft.calls[n].name == result.name]
            or [n for n in waiting if not result.id]
        )
        if fitting:
            draft.results[fitting[0]] = result
        elif result.text.strip():
            draft.calls.append(Call(result.id, result.name, {}))
            draft.results.append(result)
        return at


def _who(stats: Mapping[str, Any]) -> dict[str, Any]:
    return {"model": stats["model"]} if "model" in stats else {}


def _identified(head: Head, drafts: _Drafts, current: str, created: float) -> WholeChat:
    texts = [draft.text() for draft in drafts.all]
    if not any(text.strip() or draft.calls or draft.attachments for text, draft in zip(texts, drafts.all, strict=True)):
        raise SkippedChatError("empty")
    if any(len(text) > LONGEST_TEXT for text in texts) or any(
        len(one.text) > LONGEST_TEXT for draft in drafts.all for one in draft.attachments
    ):
        raise SkippedChatError("large")
    mark = hashlib.blake2b(digest_size=16)
    for part in (head.program, head.id):
        mark.update(_bytes(part) + b"\0")
    for draft, text in zip(drafts.all, texts, strict=True):
        mark.update(_bytes(f"{draft.key if head.id else ''}\0{draft.parent}\0{draft.role}\0{text}\0"))
    chat = mark.hexdigest()
    ids = [f"{chat}-{n}" for n in range(len(drafts.all))]  # in order: the index of a million ids is written in order
    messages = tuple(
        Message(
            draft.role, text, one, draft.time, draft.state, _stats(draft.stats), ids[draft.parent] if draft.parent >= 0
            else "", tuple(draft.attachments[:MOST_ATTACHMENTS]), _calls(draft, one),
        )
        for one, draft, text in zip(ids, drafts.all, texts, strict=True)
    )  # fmt: skip
    leaf = drafts.end_of(current)
    updated = head.updated or max((draft.time for draft in drafts.all), default=created)
    title = " ".join(head.title[:LONGEST_TITLE].split()) or next(
        (title_from(text) for draft, text in zip(drafts.all, texts, strict=True) if draft.role is Role.USER), ""
    )
    choices = {"instructions": head.instructions[:MOST_INSTRUCTIONS]} if head.instructions.strip() else {}
    folder = f"{head.program}, archived" if head.archived else head.program
    conversation = Conversation(
        chat,
        title,
        created,
        max(updated, created),
        head.pinned,
        folder,
        ids[leaf] if leaf >= 0 else "",
        choices=choices,
    )
    return WholeChat(conversation, messages)


def _calls(draft: _Draft, message: str) -> tuple[ToolCall, ...]:
    made = []
    for n, (call, result) in enumerate(zip(draft.calls[:MOST_CALLS], draft.results, strict=False)):
        state = CallState.NOT_RUN if result is None else CallState.FAILED if result.failed else CallState.DONE
        text = result.text[:LONGEST_TEXT] if result else ""
        name = " ".join(call.name[:200].split()) or "tool"
        made.append(ToolCall(f"{message}-{n}", name, _arguments(call.arguments), state, result=text))
    return tuple(made)


def _arguments(value: Any) -> dict[str, Any]:
    """Return the arguments of a call as a dictionary that can be stored."""
    given = value if isinstance(value, dict) else {} if value in (None, "") else {"input": value}
    plain = _plain(given, DEEPEST_ARGUMENTS)
    return plain if sum(map(_size, plain.values())) <= LONGEST_PLAIN // 2 else {"input": "…"}


def _plain(value: Any, left: int) -> Any:
    match value:
        case dict() if left > 0:
            return {str(name): _plain(one, left - 1) for name, one in value.items()}
        case list() if left > 0:
            return [_plain(one, left - 1) for one in value]
        case str() | bool() | None:
            return value
        case int() if abs(value) < 2**63:
            return value
        case float() if math.isfinite(value):
            return value
    return "…"


def _size(value: Any) -> int:
    match value:
        case dict():
            return sum(len(name) + _size(one) for name, one in value.items())
        case list():
            return sum(map(_size, value))
        case str():
            return len(value)
    return 8


def _stats(stats: Mapping[str, Any]) -> dict[str, Any] | None:
    return dict(stats) or None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
