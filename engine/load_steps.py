"""How long each step of a load takes, for the log and for who measures loading. It decides nothing."""

from __future__ import annotations

import logging
import time

log = logging.getLogger(__name__)


class LoadSteps:
    """seconds: of each step, in the order in which they first began. n_bytes: what steps that move some have moved."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.n_bytes: dict[str, int] = {}
        self._now = ""
        self._since = 0.0

    def begin(self, name: str) -> None:
        """The step before is over, if there was one."""
        self.end()
        self._now, self._since = name, time.perf_counter()

    def end(self) -> None:
        """Nothing counts from now on until another step begins."""
        if self._now:
            taken = time.perf_counter() - self._since
            self.seconds[self._now] = self.seconds.get(self._now, 0.0) + taken
        self._now = ""

    def moved(self, n_bytes: int) -> None:
        """So many bytes by the step of now."""
        self.n_bytes[self._now] = self.n_bytes.get(self._now, 0) + n_bytes

    def __str__(self) -> str:
        words = []
        for name, seconds in self.seconds.items():
            n = self.n_bytes.get(name)
            rate = f" ({n / 1e9:.2f} GB, {n / 1e9 / max(seconds, 1e-9):.1f} GB/s)" if n else ""
            words.append(f"{name} {seconds:.2f} s{rate}")
        return ", ".join(words)

    def tell(self) -> None:
        """Writes them to the log; steps that begin afterwards are counted anew."""
        self.end()
        if self.seconds:
            log.info("Loading took %.2f s: %s", sum(self.seconds.values()), self)
