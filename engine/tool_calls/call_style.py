"""Find out how a chat template takes tools and writes calls, and prepare conversations with tools for it.

Templates have no common convention, so this module renders a conversation with one sample call and looks for the text
that a format of engine/tool_calls/call_format.py would write. A template that writes none of them gets the tools in the
system message, and calls and results as plain texts.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from engine.errors import ChatTemplateError
from engine.text.chat_template import ChatTemplate
from engine.tool_calls.call_format import FORMATS, HERMES, Call, CallFormat

Message = dict[str, Any]

_LONGEST_PROBE_S = 0.05  # to render one call; a slower template is not probed further
_ID_LENGTH = 9  # Mistral's templates refuse others
_SAMPLE = Call("zq_find", {"zq_key": "zq value", "zq_count": 7}, "zq3456789")
_QUESTION, _ABOUT, _SAID, _RESULT = "Zq question", "Zq describes", "Zq said", "zq result"
_SAMPLE_TOOL = {
    "type": "function",
    "function": {
        "name": _SAMPLE.name,
        "description": _ABOUT,
        "parameters": {
            "type": "object",
            "properties": {
                "zq_key": {"type": "string", "description": "Zq text"},
                "zq_count": {"type": "integer", "description": "Zq number"},
            },
            "required": ["zq_key"],
        },
    },
}
_IDS = re.compile(r',"id":"\w+"')


@dataclass(frozen=True)
class CallStyle:
    """How a template takes tools.

    renders: whether it renders results, and calls too; if not, they are given as plain texts. writes_calls: whether it
    renders calls; if not, they are in the text of a message. describes: whether it renders
    the tools. text_arguments: whether it takes the arguments of a call as JSON text. no_content: whether a message with
    calls and no text must have the content None. takes_text: whether it renders both text and calls of a message; if
    not, they become two messages. takes_system: whether it takes a system message. gives_ids: whether it writes the id
    that a call has in place of its name, so that each call gets the one of its format.
    """

    format: CallFormat
    renders: bool = False
    writes_calls: bool = True
    describes: bool = False
    text_arguments: bool = False
    no_content: bool = False
    takes_text: bool = True
    takes_system: bool = True
    gives_ids: bool = False

    def prepare(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> tuple[list[Message], Any]:
        """Return messages and tools as the template takes them.

        messages: those of an assistant may have calls (list of Call) and reasoning; those of the role tool have id and
        name. tools: {"type": "function", "function": {"name", "description", "parameters"}}.
        """
        if self.renders:
            ids = self._ids(messages)
            prepared = [self._rendered(one, ids) for message in messages for one in self._divided(message)]
        else:
            prepared = _joined([self._as_text(message) for message in messages])
        if not tools or self.describes:
            return prepared, list(tools) or None
        return self._instructed(prepared, _description(tools, self.format)), None

    def _divided(self, message: Message) -> list[Message]:
        if self.takes_text or not message.get("calls") or not message["content"]:
            return [message]
        return [{key: message[key] for key in ("role", "content")}, {**message, "content": ""}]

    def _ids(self, messages: Sequence[Message]) -> dict[str, str]:
        """Return the ids for the template of all calls, by their own ones."""
        calls = [call for message in messages for call in message.get("calls") or ()]
        if self.gives_ids:
            return {call.id: self.format.id_of(call, number) for number, call in enumerate(calls)}
        return {call.id: short_id(call.id) for call in calls}

    def _rendered(self, message: Message, ids: Mapping[str, str]) -> Message:
        kept = {key: message[key] for key in ("role", "content")}
        if reasoning := message.get("reasoning"):
            kept["reasoning_content"] = reasoning
        calls = message.get("calls")
        if calls and not self.writes_calls:
            kept["content"] += self.format.write(calls)
        elif calls:
            kept["tool_calls"] = [self._rendered_call(call, ids[call.id]) for call in calls]
            if not kept["content"]:
                kept["content"] = None if self.no_content else ""
                if reasoning:
                    kept["thinking"] = reasoning  # of Harmony, which takes none beside a content
        if message["role"] == "tool":
            own = message["id"]
            kept |= {"tool_call_id": ids.get(own) or short_id(own), "name": message["name"]}
        return kept

    def _rendered_call(self, call: Call, its_id: str) -> dict[str, Any]:
        arguments = dict(call.arguments)
        given = json.dumps(arguments, ensure_ascii=False) if self.text_arguments else arguments
        return {
            "id": its_id, "type": "function", "function": {"name": call.name, "arguments": given}
        }  # fmt: skip

    def _as_text(self, message: Message) -> Message:
        role, content = message["role"], message["content"]
        if calls := message.get("calls"):
            content = "\n".join([*([content] if content else []), self.format.write(calls)])
        if role == "tool":
            role, content = "user", f"<tool_response>\n{content}\n</tool_response>"
        return {"role": role, "content": content}

    def _instructed(self, messages: list[Message], text: str) -> list[Message]:
        first = messages[0] if messages else {"role": "user", "content": ""}
        if first["role"] == ("system" if self.takes_system else "user"):
            return [{**first, "content": f"{first['content']}\n\n{text}".lstrip()}, *messages[1:]]
        return [{"role": "system" if self.takes_system else "user", "content": text}, *messages]


@lru_cache(maxsize=8)
def call_style(template: ChatTemplate) -> CallStyle:
    """Return how a template takes tools. Cost: renders a short conversation up to seven times, some milliseconds."""
    try:
        _rendered(template, [{"role": "user", "content": _QUESTION}])  # compiles it, which is not timed
        for text_arguments in (False, True):
            for no_content in (False, True):
                style = CallStyle(HERMES, True, True, True, text_arguments, no_content)
                rendered = _probed(template, style)
                found = None if rendered is None else _recognised(*rendered)
                if found is None and rendered is not None and _SAMPLE.id in rendered[1]:
                    for one in (one for one in FORMATS if one.given_id):
                        style = replace(style, format=one, gives_ids=True)
                        rendered = _probed(template, style)
                        found = None if rendered is None else _recognised(*rendered)
                        if found is one:
                            break
                if found is not None and rendered is not None:
                    describes = _ABOUT in rendered[0]
                    takes_system = describes or _takes_system(template)
                    with_text = _probed(template, style, _SAID)
                    takes_text = with_text is not None and _SAID in with_text[1] and _recognised(*with_text) is found
                    return replace(
                        style, format=found, describes=describes, takes_text=takes_text, takes_system=takes_system
                    )
        for one in (one for one in FORMATS if one.hint and one.hint in template.source):
            style = CallStyle(one, renders=True, describes=True, writes_calls=False)
            rendered = _probed(template, style)
            if rendered is not None and _ABOUT in rendered[0] and _recognised(*rendered) is one:
                return style
        return CallStyle(HERMES, takes_system=_takes_system(template))
    except _SlowTemplateError:
        return CallStyle(HERMES)


def short_id(text: str) -> str:
    """Return an id of 9 letters and digits for a call: the same one if it is one, else always the same for a text."""
    if len(text) == _ID_LENGTH and text.isascii() and text.isalnum():
        return text
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:_ID_LENGTH]


class _SlowTemplateError(Exception):
    """The template takes long to render one call."""


def _probed(template: ChatTemplate, style: CallStyle, said: str = "") -> tuple[str, str] | None:
    """Return what the template renders before and after the question; None if it fails or leaves out the result."""
    messages, tools = style.prepare(
        [
            {"role": "user", "content": _QUESTION},
            {"role": "assistant", "content": said, "calls": [_SAMPLE]},
            {"role": "tool", "content": _RESULT, "id": _SAMPLE.id, "name": _SAMPLE.name},
        ],
        [_SAMPLE_TOOL],
    )
    text = _timed(template, messages, tools)
    if text is None or _RESULT not in text:
        return None
    before, _, after = text.rpartition(_QUESTION)
    return before, after


def _timed(template: ChatTemplate, messages: Sequence[Message], tools: Any = None) -> str | None:
    """Return the prompt; None if the template fails. Raises: _SlowTemplateError."""
    began = time.thread_time()
    text = _rendered(template, messages, tools)
    if time.thread_time() - began > _LONGEST_PROBE_S:
        raise _SlowTemplateError
    return text


def _rendered(template: ChatTemplate, messages: Sequence[Message], tools: Any = None) -> str | None:
    try:
        return template.render(messages, tools=tools)
    except ChatTemplateError:
        return None


def _recognised(before: str, after: str) -> CallFormat | None:
    text = _squeezed(_IDS.sub("", _squeezed(after)))
    return next((one for one in FORMATS if any(_squeezed(each) in text for each in one.renderings(_SAMPLE))), None)


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _takes_system(template: ChatTemplate) -> bool:
    probe = [{"role": "system", "content": _ABOUT}, {"role": "user", "content": _QUESTION}]
    return _ABOUT in (_timed(template, probe) or "")


def _joined(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with consecutive ones of the user joined: many templates want the roles to alternate."""
    joined: list[Message] = []
    for message in messages:
        if joined and message["role"] == joined[-1]["role"] == "user":
            joined[-1] = {"role": "user", "content": f"{joined[-1]['content']}\n{message['content']}"}
        else:
            joined.append(message)
    return joined


def _description(tools: Sequence[Mapping[str, Any]], call_format: CallFormat) -> str:
    listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    example = call_format.write([Call("NAME_OF_THE_TOOL", {"NAME_OF_AN_ARGUMENT": "VALUE"})])
    return (
        "# Tools\n\nYou can call these tools, which are described as JSON with a schema of their arguments:\n"
        f"<tools>\n{listed}\n</tools>\n\nTo call a tool, write this and nothing after it:\n{example}\n"
        "You then get the result in the next message."
    )
