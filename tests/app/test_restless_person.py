"""Send, stop, switch, delete and quit at random moments: everything ends, no thread stays, nothing is being written."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from desk import Desk
from pytestqt.qtbot import QtBot

from app.chat.store.conversation import MessageState


def some_acts(desk: Desk, chance: random.Random) -> None:
    """What a restless person does, none of it awaited."""
    controller = desk.controller
    acts: list[Callable[[], object]] = [
        lambda: controller.send(f"words {chance.randrange(1, 60)} pace 0.002"),
        lambda: controller.send("hello"),
        controller.stop,
        controller.next.take_back,
        controller.next.remove,
        lambda: desk.memory.read_bin(lambda binned: [desk.memory.restore(one.conversation.id) for one in binned]),
        controller.new_chat,
        lambda: desk.conversations and controller.open(chance.choice(desk.conversations).id),
        lambda: desk.conversations and controller.delete(chance.choice(desk.conversations).id),
        lambda: controller.use_model(chance.choice(["fake", "fake-slow", "fake-as-other", "fake-missing"])),
        controller.unload,
        controller.cancel_load,
        lambda: controller.search("word"),
    ]
    for _ in range(chance.randrange(1, 6)):
        chance.choice(acts)()
        if chance.random() < 0.5:
            desk.qtbot.wait(chance.randrange(20))


@pytest.mark.gui
@pytest.mark.parametrize("quits", [8, pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_a_person_who_quits_at_any_moment(qtbot: QtBot, tmp_path: Path, quits: int) -> None:
    chance = random.Random(6)
    gc.collect()  # ends the threads of engines that earlier tests left
    before = threading.active_count()
    for number in range(quits):
        desk = Desk(qtbot, tmp_path, location="in-thread" if number % 2 else "process")
        if chance.random() < 0.8:
            desk.wait(lambda: desk.is_open)  # noqa: B023 - called at once
        some_acts(desk, chance)
        desk.close()
        assert [m.state for m in desk.stored() if m.state is MessageState.WRITING] == []
    assert threading.active_count() <= before
