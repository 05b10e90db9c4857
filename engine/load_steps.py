"""Time the steps of a load, for the log and benchmarks."""

from __future__ import annotations

import logging
import time

log = logging.getLogger(__name__)


class LoadSteps:
    """seconds: per step, in order of first start. n_bytes: bytes moved by the steps that move some."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.n_bytes: dict[str, int] = {}
        self._now = ""
        self._since = 0.0

    def begin(self, name: str) -> None:
        """End the current step and begin this one."""
        self.end()
        self._now, self._since = name, time.perf_counter()

    def end(self) -> None:
        if self._now:
            taken = time.perf_counter() - self._since
            self.seconds[self._now] = self.seconds.get(self._now, 0.0) + taken
        self._now = ""

    def moved(self, n_bytes: int) -> None:
        """Add bytes to the current step."""
        self.n_bytes[self._now] = self.n_bytes.get(self._now, 0) + n_bytes

    def __str__(self) -> str:
        words = []
        for name, seconds in self.seconds.items():
            n = self.n_bytes.get(name)
            rate = f" ({n / 1e9:.2f} GB, {n / 1e9 / max(seconds, 1e-9):.1f} GB/s)" if n else ""
            words.append(f"{name} {seconds:.2f} s{rate}")
        return ", ".join(words)

    def tell(self) -> None:
        self.end()
        if self.seconds:
            log.info("Loading took %.2f s: %s", sum(self.seconds.values()), self)
