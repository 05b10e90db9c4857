"""Compares two answers to the same question: where their words differ, and which was faster."""

from __future__ import annotations

from app.chat.answers.mode_rates import MODE_TEXTS
from app.chat.store.conversation import Message
from app.translation import figure, tr, tr_n
from engine.text.thoughts import spoken

ABOUT_AS_FAST = 0.05  # rates that differ by less count as equal


def verdict(first: Message, second: Message) -> str:
    """Return the result of two finished answers: the texts, then the speed; "" if nothing can be said."""
    said, (ours, theirs) = [], (spoken(one.text).split() for one in (first, second))
    if ours == theirs and ours:
        said.append(tr("Both wrote the same words."))
    elif ours and theirs:
        pairs = enumerate(zip(ours, theirs, strict=False))
        n = next((n for n, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
        said.append(
            tr_n("The first word is the same; then they differ.",
                 "The first {n} words are the same; then they differ.", n, n=figure(n))
            if n else tr("They differ from the first word.")
        )  # fmt: skip
    stats = [one.stats or {} for one in (first, second)]
    rates = [float(one.get("decode_tok_s") or 0) for one in stats]
    if all(rates):
        times = max(rates) / min(rates)
        names = [str(one.get("model") or "") for one in stats]
        if names[0] == names[1]:
            names = [tr(MODE_TEXTS[mode]) if (mode := one.get("mode")) in MODE_TEXTS else "" for one in stats]
        faster, slower = names if rates[0] >= rates[1] else names[::-1]
        if times - 1 < ABOUT_AS_FAST:
            said.append(tr("Both are about as fast here."))
        elif faster and slower and faster != slower:
            said.append(
                tr("{faster} is {times} times as fast as {slower} here.",
                   faster=faster, times=figure(times, ".1f"), slower=slower)
            )  # fmt: skip
    return " ".join(said)
