"""Reading requests from a pipe that fails."""

from __future__ import annotations

from typing import Any

import pytest

from engine.service import stdio


class Pipe:
    """Gives each answer once, then the last one again and again."""

    def __init__(self, *answers: bytes | OSError) -> None:
        self.answers = list(answers)

    def readline(self, most_bytes: int) -> bytes:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("answers", "lines"),
    [
        ([OSError(22, "Invalid argument"), b"a\n", OSError(22, "Invalid argument"), b"b\n", b""], [b"a\n", b"b\n"]),
        ([b"a\n", OSError(5, "Input/output error")], [b"a\n"]),
    ],
)
def test_a_read_error_loses_no_request_and_ends_the_engine_if_it_stays(
    answers: list[Any], lines: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "_BETWEEN_READS_S", 0.0)
    assert list(stdio._lines(Pipe(*answers), 100)) == lines  # type: ignore[arg-type]
