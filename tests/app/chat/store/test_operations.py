"""Background work: order, delivery on the main thread, and saves that wait out a full disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chat.store.conversation import Conversation, Message, Role
from app.chat.store.operations import Operations
from app.chat.store.store import Store
from app.errors import StoreError, StoreErrorKind

pytestmark = pytest.mark.gui


@pytest.fixture
def operations(qtbot: QtBot) -> Iterator[Operations]:
    made = Operations(retry_s=60)  # only retry_now() or close() try again, so that no test depends on a clock
    yield made
    made.close(10)


class Failing:
    """Work that raises what is planned, one at a call, and then succeeds."""

    def __init__(self, *kinds: StoreErrorKind) -> None:
        self.plan = list(kinds)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.plan:
            raise StoreError(self.plan.pop(0), "made up")
        return "saved"


def test_results_come_on_the_main_thread_and_work_does_not_run_there(operations: Operations, qtbot: QtBot) -> None:
    threads: list[threading.Thread] = []
    results: list[int] = []

    def work() -> int:
        threads.append(threading.current_thread())
        return 42

    def done(value: int) -> None:
        threads.append(threading.current_thread())
        results.append(value)

    operations.run("answer", work, done)
    assert results == []
    qtbot.waitUntil(lambda: results == [42])
    assert threads[0] is not threading.main_thread()
    assert threads[1] is threading.main_thread()


def test_a_failure_reaches_on_failure_alone(operations: Operations, qtbot: QtBot) -> None:
    failures: list[BaseException] = []
    problem = OSError("no such thing")

    def work() -> None:
        raise problem

    operations.run("fail", work, lambda _: failures.append(AssertionError("no success")), failures.append)
    qtbot.waitUntil(lambda: bool(failures))
    assert failures == [problem]


def test_a_failure_that_nobody_takes_reaches_the_excepthook(operations: Operations, qtbot: QtBot) -> None:
    problem = KeyError("a bug")

    def work() -> None:
        raise problem

    with qtbot.capture_exceptions() as captured:
        operations.run("fail", work)
        after: list[str] = []
        operations.run("next", lambda: "still working", after.append)
        qtbot.waitUntil(lambda: bool(after))
    assert [error for _, error, _ in captured] == [problem]


def test_an_exception_in_a_callback_reaches_the_excepthook(operations: Operations, qtbot: QtBot) -> None:
    problem = ValueError("a bug in a callback")

    def callback(value: object) -> None:
        raise problem

    with qtbot.capture_exceptions() as captured:
        operations.run("work", lambda: 1, callback)
        after: list[int] = []
        operations.run("next", lambda: 2, after.append)
        qtbot.waitUntil(lambda: after == [2])
    assert [error for _, error, _ in captured] == [problem]


def test_everything_runs_in_the_order_it_was_asked_for(operations: Operations, qtbot: QtBot) -> None:
    ran: list[int] = []
    ended: list[int] = []

    def work(number: int) -> Callable[[], int]:
        def run() -> int:
            ran.append(number)
            return number

        return run

    for number in range(500):
        (operations.keep_trying if number % 3 else operations.run)(f"{number}", work(number), ended.append)
    qtbot.waitUntil(lambda: len(ended) == 500)
    assert ran == ended == list(range(500))
    assert operations.waiting() == []


@pytest.mark.parametrize("kind", ["full", "read-only", "locked"])
def test_a_save_that_cannot_get_through_holds_the_queue_and_loses_nothing(
    operations: Operations, qtbot: QtBot, kind: StoreErrorKind
) -> None:
    said: list[object] = []
    operations.stalled.connect(lambda error: said.append(error.kind))
    operations.resumed.connect(lambda: said.append("resumed"))
    save = Failing(kind, kind, kind)
    operations.keep_trying("save", save, said.append)
    operations.run("read", lambda: "read", said.append)
    qtbot.waitUntil(lambda: said == [kind])
    assert operations.waiting() == ["save", "read"]
    for calls in (2, 3):
        operations.retry_now()
        qtbot.waitUntil(lambda calls=calls: save.calls == calls)
    assert said == [kind]  # told once
    operations.retry_now()
    qtbot.waitUntil(lambda: len(said) == 4)
    assert said == [kind, "resumed", "saved", "read"]
    assert save.calls == 4


def test_a_stall_is_tried_again_by_itself(qtbot: QtBot) -> None:
    operations = Operations(retry_s=0.01)
    save, said = Failing("locked", "locked", "locked"), []
    operations.keep_trying("save", save, said.append)
    qtbot.waitUntil(lambda: said == ["saved"])
    assert operations.close() == []


def test_a_stall_with_a_new_reason_is_told_again(operations: Operations, qtbot: QtBot) -> None:
    kinds: list[str] = []
    operations.stalled.connect(lambda error: kinds.append(error.kind))
    operations.keep_trying("save", Failing("locked", "full"))
    qtbot.waitUntil(lambda: kinds == ["locked"])
    operations.retry_now()
    qtbot.waitUntil(lambda: kinds == ["locked", "full"])


def test_damage_does_not_hold_the_queue(operations: Operations, qtbot: QtBot) -> None:
    said: list[object] = []
    operations.stalled.connect(lambda error: said.append("stalled"))
    operations.resumed.connect(lambda: said.append("resumed"))
    operations.keep_trying("save", Failing("full", "damaged"), None, lambda error: said.append(error.kind))
    operations.keep_trying("save", Failing("damaged"), None, lambda error: said.append(error.kind))
    qtbot.waitUntil(lambda: said == ["stalled"])
    operations.retry_now()
    qtbot.waitUntil(lambda: len(said) == 4)
    assert said == ["stalled", "resumed", "damaged", "damaged"]


def test_plain_work_is_never_tried_twice(operations: Operations, qtbot: QtBot) -> None:
    work, failures = Failing("full"), []
    operations.run("once", work, None, failures.append)
    qtbot.waitUntil(lambda: bool(failures))
    assert work.calls == 1


def test_a_wish_to_retry_during_an_attempt_is_not_lost(operations: Operations, qtbot: QtBot) -> None:
    inside, go_on = threading.Event(), threading.Event()
    calls: list[int] = []
    said: list[str] = []

    def save() -> str:
        calls.append(1)
        if len(calls) == 1:
            inside.set()
            assert go_on.wait(60)
            raise StoreError("full", "made up")
        return "saved"

    operations.keep_trying("save", save, said.append)
    assert inside.wait(60)
    operations.retry_now()
    go_on.set()
    qtbot.waitUntil(lambda: said == ["saved"])


def test_close_does_everything_first_and_delivers_the_endings(qtbot: QtBot) -> None:
    operations = Operations()
    ended: list[int] = []
    for number in range(50):
        operations.keep_trying(f"{number}", lambda number=number: number, ended.append)
    assert operations.close(30) == []
    assert ended == list(range(50))
    with pytest.raises(RuntimeError, match="after close"):
        operations.run("late", lambda: None)
    assert operations.close(0) == []


def test_close_tries_a_stalled_save_once_more(qtbot: QtBot) -> None:
    operations = Operations(retry_s=60)
    said: list[str] = []
    operations.stalled.connect(lambda error: said.append("stalled"))
    operations.keep_trying("save", Failing("full"), said.append)
    qtbot.waitUntil(lambda: said == ["stalled"])
    assert operations.close(30) == []
    assert said == ["stalled", "saved"]


def test_close_names_what_could_not_be_saved(qtbot: QtBot) -> None:
    operations = Operations(retry_s=0.01)

    def never() -> None:
        raise StoreError("full", "made up")

    operations.keep_trying("the answer", never)
    operations.keep_trying("the title", lambda: None)
    assert operations.close(0.2) == ["the answer", "the title"]


def test_a_really_full_database_that_is_given_room(operations: Operations, qtbot: QtBot, tmp_path: Path) -> None:
    store = Store.open(tmp_path / "chats.db")
    chat = Conversation(title="full")
    store.save_conversation(chat)
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    said: list[str] = []
    operations.stalled.connect(lambda error: said.append(error.kind))
    operations.resumed.connect(lambda: said.append("resumed"))
    texts = [f"{number} " + "word " * 2000 for number in range(5)]
    for text in texts:
        message = Message(Role.USER, text)
        operations.keep_trying("save", lambda message=message: store.append(chat.id, message))
    qtbot.waitUntil(lambda: said == ["full"])
    assert store.messages(chat.id) == []
    store._db.execute(f"PRAGMA max_page_count = {pages + 1000}")
    operations.retry_now()
    read: list[list[Message]] = []
    operations.run("read", lambda: store.messages(chat.id), read.append)
    qtbot.waitUntil(lambda: bool(read))
    assert [message.text for message in read[0]] == texts
    assert said == ["full", "resumed"]
    store.close()
