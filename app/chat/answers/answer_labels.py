"""The figures of an answer as text: for the line below it, and for the table behind that line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.chat.store.conversation import MessageState
from app.later import Later
from app.translation import figure, noted, tr, tr_n
from app.units import rate, seconds

if TYPE_CHECKING:
    from engine.service import protocol
else:
    protocol = Later("engine.service.protocol")

THINKING: dict[str, str] = {
    "off": noted("Off"), "on": noted("On"), "low": noted("Low"), "medium": noted("Medium"), "high": noted("High"),
}  # fmt: skip
MODES = {"exact": noted("Exact"), "sparse": noted("Sparse"), "dense": noted("Dense")}
GUESSED_BY = {"draft": noted("Guessed by a smaller model")}  # sources of guesses that have a line of their own


def state_text(state: MessageState, stats: Mapping[str, Any]) -> str:
    """Return how an answer ended, unless it ended by itself."""
    if state is MessageState.CANCELLED:
        return tr("Stopped")
    if state is MessageState.LENGTH:
        full = stats.get("context_full") or stats.get("finish_reason") == "context"
        return tr("Cut off: the context is full") if full else tr("Cut off at the length limit")
    if state is MessageState.INTERRUPTED:
        return tr("Interrupted: Hearth closed in mid-answer")
    if state is not MessageState.FAILED:
        return ""
    return (
        tr("Not finished: the server stopped answering")
        if stats.get("server")
        else tr("Not finished: the engine failed")
    )


def facts_of(stats: Mapping[str, Any]) -> list[str]:
    """Return the known figures of a finished answer as texts."""
    facts = []
    if server := stats.get("server"):
        facts.append(
            tr("from {server}, another program on this PC", server=str(server))
            if stats.get("server_here")
            else tr("from {server}, not on this PC", server=str(server))
        )
    tokens = stats.get("tokens")
    if tokens is not None:
        words = count(tokens)
        facts.append(
            tr("{tokens} in {time}", tokens=words, time=seconds(stats["total_s"]))
            if stats.get("total_s") is not None
            else words
        )
    if stats.get("ttft_s") is not None:
        facts.append(tr("first after {time}", time=seconds(stats["ttft_s"])))
    if stats.get("active_share") is not None:
        facts.append(tr("{share} of neurons", share=percent(float(stats["active_share"]))))
    return facts


def figures_of(stats: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return all known figures of an answer as (name, value)."""
    rows: list[tuple[str, str]] = []

    def add(name: str, key: str, words: Any) -> None:
        if stats.get(key) is not None:
            rows.append((name, words(stats[key])))

    add(tr("Model"), "model", str)
    here = stats.get("server_here")
    add(tr("Another program on this PC") if here else tr("Server, not on this PC"), "server", str)
    add(tr("Neurons"), "mode", lambda mode: tr(MODES[mode]) if mode in MODES else str(mode))
    add(tr("Answer"), "tokens", count)
    add(
        tr("Thought"),
        "thought_tokens",
        lambda n: tr("{tokens} in {time}", tokens=count(n), time=seconds(stats.get("thought_s"))),
    )
    add(tr("Time"), "total_s", seconds)
    add(tr("First token after"), "ttft_s", seconds)
    add(tr("Writing"), "decode_tok_s", rate)
    if stats.get("guessed_tokens"):
        right = figure(stats.get("accepted_tokens", 0))
        add(tr("Guessed tokens"), "guessed_tokens", lambda n: tr("{n} of {total} right", n=right, total=figure(n)))
        for source, title in GUESSED_BY.items():
            total, right_ones = (stats.get("guesses") or {}).get(source) or (0, 0)
            if total:
                rows.append((tr(title), tr("{n} of {total} right", n=figure(right_ones), total=figure(total))))
    add(tr("Prompt"), "prompt_tokens", count)
    if stats.get("restored_tokens"):
        add(tr("Loaded from disk"), "restored_tokens", count)
    elif stats.get("reused_tokens"):
        add(tr("Already in memory"), "reused_tokens", count)
    if stats.get("prompt_tokens", protocol.FEWEST_READ) - stats.get("reused_tokens", 0) >= protocol.FEWEST_READ:
        add(tr("Reading"), "prefill_tok_s", rate)
    add(tr("Neurons computed"), "active_share", lambda share: percent(float(share)))
    add(tr("Neurons that fired"), "fired_share", lambda share: percent(float(share)))
    add(tr("Share on the GPU"), "gpu_neuron_load", lambda share: percent(float(share)))
    if stats.get("context_total"):
        add(
            tr("Context"),
            "context_used",
            lambda used: tr("{used} of {total}", used=figure(used), total=figure(stats["context_total"])),
        )
    if stats.get("summarised"):
        add(
            tr("Summarised"),
            "summarised",
            lambda n: tr_n("{n} message", "{n} messages", n, n=figure(n)),
        )
    if stats.get("dropped_messages"):
        add(
            tr("Left out of the context"),
            "left_out" if "left_out" in stats else "dropped_messages",
            lambda n: tr_n("{n} message", "{n} messages", n, n=figure(n)),
        )
    return rows


def count(tokens: int) -> str:
    """Return a number of tokens as text."""
    return tr_n("{n} token", "{n} tokens", tokens, n=figure(tokens))


def percent(share: float) -> str:
    """Return a fraction as a percentage."""
    return f"{figure(100 * share, '.0f')}%" if share >= 0.01 or share == 0 else tr("under 1%")


def thought_text(stats: Mapping[str, Any]) -> str:
    taken = stats.get("thought_s")
    return tr("Thought for {time}", time=seconds(float(taken))) if taken else tr("Thought")
