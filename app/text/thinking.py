"""Measures how long a model thinks. engine/text/thoughts.py separates thoughts from answers."""

from __future__ import annotations

from engine.text.thoughts import ReplySplitter


class ThoughtClock:
    """Measures the time and tokens of a reply's thoughts as its text arrives."""

    def __init__(self, text: str = "", seconds: float = 0.0, tokens: int = 0) -> None:
        """text: written before, in `seconds` and `tokens`."""
        self.seconds, self.tokens = seconds, tokens
        self._splitter = ReplySplitter()
        self._splitter.append(text)
        self._began: tuple[float, int] | None = None  # now, tokens

    def take(self, text: str, now: float, tokens: int) -> None:
        """Take new text. now: of a monotonic clock, in s. tokens: of the reply so far."""
        was_thinking = self._splitter.is_thinking
        thought, _ = self._splitter.append(text)
        if self._began is None and (was_thinking or self._splitter.is_thinking or thought):
            self._began = (now, max(tokens - 1, 0))
        if not self._splitter.is_thinking:
            self.stop(now, tokens)

    def stop(self, now: float, tokens: int) -> None:
        """End the thought or the reply."""
        if self._began is not None:
            began, before = self._began
            self.seconds += now - began
            self.tokens += max(tokens - before, 0)
            self._began = None

    def figures(self) -> dict[str, float | int]:
        """Return the message's statistics; empty if it had no thought."""
        if not self._splitter.has_thought:
            return {}
        return {"thought_s": round(self.seconds, 3), "thought_tokens": self.tokens}
