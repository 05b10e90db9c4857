"""What kill -9 in the middle of an answer leaves in the file of chats: all but the last moments' words, and no harm."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the processes are forks")

SCRIPT = Path(__file__).with_name("killed_streams.py")


def killed(count: int, longest_s: float, within_s: float) -> dict[str, Any]:
    command = [sys.executable, str(SCRIPT), "--kills", str(count), "--longest", str(longest_s)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=within_s)
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout))


def test_a_few_kills_leave_a_sound_file() -> None:
    figures = killed(4, longest_s=1.5, within_s=170)
    assert figures["kills"] == 4
    assert figures["problems"] == []
    assert 0 <= figures["words_kept"] <= figures["words_streamed"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_kills_cost_at_most_a_second_each() -> None:
    figures = killed(1000, longest_s=3.0, within_s=3500)
    assert figures["problems"] == []
    assert figures["lost_s"]["max"] <= 1.0
