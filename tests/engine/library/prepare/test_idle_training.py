"""Training while nobody waits: begun, stopped, held, and never tried twice in vain."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from fakes.download_places import wait_for

from engine.errors import Cancelled, LibraryError
from engine.library.prepare.idle_training import IdleTraining


class Shelf:
    """Models that want training, which takes until `go_on`."""

    def __init__(self, *models: str) -> None:
        self.waiting = list(models)
        self.begun: list[str] = []
        self.go_on = threading.Event()
        self.error: Exception | None = None
        self.told: list[str] = []
        self.training = IdleTraining(lambda: list(self.waiting), self.train, self.tell)

    def tell(self) -> None:
        self.told.append(self.training.running)

    def train(self, model: str, cancelled: Callable[[], bool]) -> None:
        self.begun.append(model)
        while not self.go_on.wait(0.005):
            if cancelled():
                raise Cancelled
        if self.error is not None:
            raise self.error
        self.waiting.remove(model)


def test_it_trains_one_after_another_and_says_which() -> None:
    shelf = Shelf("a", "b")
    shelf.go_on.set()
    assert shelf.training.allow(True)
    wait_for(lambda: shelf.told == ["a", "b", ""])
    assert shelf.begun == ["a", "b"]
    assert shelf.waiting == []


def test_it_stops_for_whoever_waits_and_goes_on_later() -> None:
    shelf = Shelf("a")
    shelf.training.allow(True)
    wait_for(lambda: shelf.training.running == "a")
    assert shelf.training.allow(False) == ["a"]
    wait_for(lambda: shelf.training.running == "")
    shelf.go_on.set()
    shelf.training.allow(True)
    wait_for(lambda: not shelf.waiting)
    assert shelf.begun == ["a", "a"]


def test_preparing_that_was_asked_for_goes_first() -> None:
    shelf = Shelf("a")
    shelf.training.allow(True)
    wait_for(lambda: shelf.training.running == "a")
    shelf.training.hold()
    assert shelf.training.running == ""
    shelf.training.allow(True)
    assert shelf.begun == ["a"], "not while it is held"
    shelf.go_on.set()
    shelf.training.release()
    wait_for(lambda: not shelf.waiting)


@pytest.mark.expects_log("is not trained in idle time")
def test_a_model_that_cannot_be_trained_is_left_alone() -> None:
    shelf = Shelf("a", "b")
    shelf.error = LibraryError("Its text is gone.")
    shelf.go_on.set()
    shelf.training.allow(True)
    wait_for(lambda: shelf.begun == ["a", "b"] and not shelf.training.running)
    shelf.error = None
    shelf.training.allow(True)
    wait_for(lambda: not shelf.training.running)
    assert shelf.begun == ["a", "b"]
    shelf.training.close()
