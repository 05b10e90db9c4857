"""Tells which questions the bundled starter model cannot answer well. It knows small facts, stories and sums. No Qt."""

from __future__ import annotations

import re

from app.chat.store.conversation import Message

MOST_WORDS = 30  # of a question; longer ones are texts to work on, or tasks with conditions

# Words that ask for work on a text, code, a comparison or advice. Each pattern matches at a word's beginning.
_TASKS = re.compile(
    r"\b(?:"
    r"re(?:write|word|phrase)|paraphrase|translat|summar[iy]|proofread|shorten|polish|edit|improve|correct|fix|format"
    r"|cod(?:e|ing)\b|program(?:s|ming|me)?\b|script|python|java|html|css|sql|regex|regular expression|function|bash"
    r"|compar|versus|vs\b|differ|pros and cons|advantages?|disadvantages?|better|best|which (?:one|is)"
    r"|should|advi[cs]e|recommend|suggest|help me|how (?:do|can|could|would) i|what (?:do|can|could) i do|plan|tips"
    r"|explain|analy[sz]e|argue|essay|email|e-mail|letter|report|review|brainstorm|outline|draft|step by step|prove"
    r")",
    re.IGNORECASE,
)


def is_beyond_starter(question: Message) -> bool:
    """Return whether the starter model will probably fail at this question."""
    text = question.text
    return (
        bool(question.attachments)
        or "```" in text
        or len(text.split()) > MOST_WORDS
        or any(char.isalpha() and not char.isascii() for char in text)  # it knows English alone
        or _TASKS.search(text) is not None
    )
