"""The figures of an answer in words: for the line under it, and for the table behind that line. It shows nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.conversation import MessageState
from app.engine_status import rate, seconds
from app.translation import tr

_MODES = {"exact": "Exact", "sparse": "Sparse", "dense": "Dense"}


def state_words(state: MessageState, stats: Mapping[str, Any]) -> str:
    """How an answer ended, when it did not end by itself."""
    if state is MessageState.CANCELLED:
        return "Stopped"
    if state is MessageState.LENGTH:
        full = stats.get("context_full") or stats.get("finish_reason") == "context"
        return "Cut off: the context is full" if full else "Cut off at the length limit"
    if state is MessageState.INTERRUPTED:
        return "Interrupted: Hearth closed in mid-answer"
    return "Not finished: the engine failed" if state is MessageState.FAILED else ""


def facts_of(stats: Mapping[str, Any]) -> list[str]:
    """The figures of a finished answer in words; what is unknown is left out."""
    facts = [tr("from {server}, not on this PC", server=str(stats["server"]))] if stats.get("server") else []
    tokens = stats.get("tokens")
    if tokens is not None:
        words = count(tokens)
        facts.append(f"{words} in {seconds(stats['total_s'])}" if stats.get("total_s") is not None else words)
    if stats.get("ttft_s") is not None:
        facts.append(f"first after {seconds(stats['ttft_s'])}")
    if stats.get("active_share") is not None:
        facts.append(f"{percent(float(stats['active_share']))} of neurons")
    return facts


def figures_of(stats: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Everything that is known of how an answer came about, as names and values; what is unknown is left out."""
    rows: list[tuple[str, str]] = []

    def add(name: str, key: str, words: Any) -> None:
        if stats.get(key) is not None:
            rows.append((name, words(stats[key])))

    add("Model", "model", str)
    add("Server, not on this PC", "server", str)
    add("Neurons", "mode", lambda mode: _MODES.get(str(mode), str(mode)))
    add("Answer", "tokens", count)
    add("Thought", "thought_tokens", lambda n: f"{count(n)} in {seconds(stats.get('thought_s'))}")
    add("Time", "total_s", seconds)
    add("First token after", "ttft_s", seconds)
    add("Writing", "decode_tok_s", rate)
    add("Prompt", "prompt_tokens", count)
    if stats.get("reused_tokens"):
        add("Of it already read", "reused_tokens", count)
    add("Reading", "prefill_tok_s", rate)
    add("Neurons computed", "active_share", lambda share: percent(float(share)))
    add("Neurons that fired", "fired_share", lambda share: percent(float(share)))
    add("Share on the GPU", "gpu_neuron_load", lambda share: percent(float(share)))
    if stats.get("context_total"):
        add("Context", "context_used", lambda used: f"{used:,} of {stats['context_total']:,}")
    if stats.get("dropped_messages"):
        add("Left out of the context", "dropped_messages", lambda n: "1 message" if n == 1 else f"{n:,} messages")
    return rows


def count(tokens: int) -> str:
    """So many tokens."""
    return f"{tokens:,} tokens" if tokens != 1 else "1 token"


def percent(share: float) -> str:
    """A share as the product writes it."""
    return f"{100 * share:.0f}%" if share >= 0.01 or share == 0 else "under 1%"


def thought_words(stats: Mapping[str, Any]) -> str:
    """What the head of a thought says once it is over."""
    taken = stats.get("thought_s")
    return f"Thought for {seconds(float(taken))}" if taken else "Thought"
