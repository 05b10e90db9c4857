"""The operators of prompts on the card that is there, for tests."""

from __future__ import annotations

from arrays_on_card import CardArrays, entered_device

from native_kernels.cuda.prefill_ops import CardPrefillOps
from native_kernels.cuda.runtime.driver import Stream


class PrefillOnCard:
    """The operators, and arrays on the card, until `close`. Where there is no card, the test is skipped."""

    def __init__(self) -> None:
        self.device = entered_device()
        self.arrays = CardArrays(self.device)
        self.copies = Stream(self.device)
        self.ops = CardPrefillOps(self.device, self.arrays.stream, self.copies)

    def close(self) -> None:
        self.ops.close()
        self.arrays.close()
        self.copies.close()
        self.device.close()
