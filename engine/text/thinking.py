"""Find out which thinking levels a chat template supports, and how to request each of them.

Templates have no common convention: each reads its own variable, or a keyword in the system message. This module
therefore renders a short conversation with and without each known one, and keeps only those that change the prompt.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from engine.errors import ChatTemplateError
from engine.text.chat_template import ChatTemplate
from engine.text.thoughts import end_of, opened_thought
from engine.thinking_level import EFFORTS, LEVELS, Level, nearest_level

Messages = Sequence[Mapping[str, Any]]

# Variables that templates read, with the values for no thought and for a thought. None: leave the variable unset.
_SWITCHES: tuple[tuple[str, Any, Any], ...] = (
    ("enable_thinking", False, True),
    ("thinking", False, True),
    ("reasoning", False, True),
    ("thinking_mode", "disabled", "enabled"),
    ("thinking_option", "off", "on"),
    ("thinking_budget", 0, None),
    ("reasoning_effort", "none", None),
)
_EFFORT_NAMES = ("reasoning_effort", "thinking_effort", "reasoning_strength")
_WORDS = ("/no_think", "/nothink")  # keywords in the system message, read by the template
_NO_VALUE = "unheard-of"  # shows how a template handles any value that it does not know
_QUESTION = ({"role": "user", "content": "Hello"},)
_END_CHARS = 12  # at the end of a prompt, which show whether a thought is closed
_MARK_CHARS = 64  # at the end of a prompt, with its last mark; a search of a long text could take minutes
_LONGEST_PROBE_S = 0.05  # to render one question; a slower template is not probed further
_ENDED = re.compile(r"</[a-z:]*think[a-z:]*>\s*$", re.IGNORECASE)


@dataclass(frozen=True)
class Way:
    """How to request one level from a template.

    variables: passed to the template. words: appended to the system message. ending: appended to the prompt.
    """

    variables: Mapping[str, Any] = field(default_factory=dict)
    words: str = ""
    ending: str = ""


@dataclass(frozen=True)
class Thinking:
    """The levels that a template supports. default: the level that applies if none is chosen; None: unknown."""

    ways: Mapping[Level, Way] = field(default_factory=dict)
    default: Level | None = None

    @property
    def levels(self) -> tuple[Level, ...]:
        """The supported levels, in the order of LEVELS. With fewer than two, there is no choice."""
        return tuple(level for level in LEVELS if level in self.ways)

    def nearest(self, level: Level | None) -> Level | None:
        """Return the supported level nearest to this one, as `nearest_level`."""
        return nearest_level(level, self.levels, self.default)

    def way(self, level: Level | None) -> Way:
        """Return how to request the nearest level."""
        found = self.nearest(level)
        return Way() if found is None else self.ways[found]


def with_words(messages: Messages, words: str) -> list[dict[str, Any]]:
    """Return the messages with `words` appended to the system message, which is added if it is missing."""
    turns = [dict(message) for message in messages]
    if words and turns and turns[0].get("role") == "system":
        turns[0]["content"] = f"{turns[0].get('content', '')} {words}".lstrip()
    elif words:
        turns.insert(0, {"role": "system", "content": words})
    return turns


def thinking_of(template: ChatTemplate) -> Thinking:
    """Return the levels that a template supports; none if it fails or renders slowly.

    Cost: renders one question several times, about a millisecond.
    """
    plain = _rendered(template)  # also compiles the template
    try:
        return Thinking() if plain is None or _timed(template) is None else _found(template, plain)
    except _SlowTemplateError:
        return Thinking()


class _SlowTemplateError(Exception):
    """The template takes long to render one question."""


def _found(template: ChatTemplate, plain: str) -> Thinking:
    """Return the levels. plain: the prompt without any choice. Raises: _SlowTemplateError."""
    ways = _switch(template) or _switch_by_words(template) or _switch_by_ending(plain)
    ways |= (efforts := _efforts(template, ways.get("on", Way()).variables))
    if efforts and "off" not in ways and _ENDED.search(plain[-_MARK_CHARS:]):
        ways["off"] = Way()
    prompts = {level: _timed(template, way.variables) for level, way in ways.items() if not way.words}
    same = [level for level, prompt in prompts.items() if prompt == plain and not ways[level].ending]
    return Thinking(ways, next((level for level in ("off", *EFFORTS, "on") if level in same), None))


def _rendered(template: ChatTemplate, variables: Mapping[str, Any] | None = None, words: str = "") -> str | None:
    try:
        return template.render(with_words(_QUESTION, words), variables=variables)
    except ChatTemplateError:
        return None


def _timed(template: ChatTemplate, variables: Mapping[str, Any] | None = None, words: str = "") -> str | None:
    """Return the prompt; None if the template fails. Raises: _SlowTemplateError."""
    began = time.thread_time()
    prompt = _rendered(template, variables, words)
    if time.thread_time() - began > _LONGEST_PROBE_S:
        raise _SlowTemplateError
    return prompt


def _switch(template: ChatTemplate) -> dict[Level, Way]:
    for name, off, on in _SWITCHES:
        if name not in template.source:
            continue
        on_values = {} if on is None else {name: on}
        without, thinking = _timed(template, {name: off}), _timed(template, on_values)
        if without is None or thinking is None or without == thinking:
            continue
        unknown = _timed(template, {name: _NO_VALUE}) if isinstance(off, str) else None
        if unknown is not None and unknown[-_END_CHARS:] == without[-_END_CHARS:]:
            continue  # the template only passes the value on to the model
        return {"off": Way({name: off}), "on": Way(on_values)}
    return {}


def _switch_by_words(template: ChatTemplate) -> dict[Level, Way]:
    """Return off and on if the template reads a keyword in the system message and removes it from the prompt."""
    for words in _WORDS:
        if words in template.source:
            found = _timed(template, words=words)
            if found is not None and words not in found and found != _timed(template, words="."):
                return {"off": Way(words=words), "on": Way()}
    return {}


def _switch_by_ending(plain: str) -> dict[Level, Way]:
    """Return off and on if the prompt opens a thought. Off closes the thought at once."""
    opened = opened_thought(plain[-_MARK_CHARS:])
    if not opened:
        return {}
    return {"off": Way(ending=f"\n{end_of(opened)}\n\n"), "on": Way()}


def _efforts(template: ChatTemplate, on: Mapping[str, Any]) -> dict[Level, Way]:
    """Return the efforts that the template knows, if there are two or more and all their prompts differ.

    on: variables that turn thinking on.
    """
    for name in _EFFORT_NAMES:
        if name not in template.source:
            continue
        unknown = _timed(template, {**on, name: _NO_VALUE})
        prompts = {level: _timed(template, {**on, name: level}) for level in EFFORTS}
        known = {level: prompt for level, prompt in prompts.items() if prompt is not None and prompt != unknown}
        if len(known) > 1 and all(a != b for a, b in pairwise(sorted(known.values()))):
            return {level: Way({**on, name: level}) for level in known}
    return {}
