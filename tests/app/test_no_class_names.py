"""No message that a person reads holds the name of a class: it says what happened, why, and what to do."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from app.user_messages import UserMessage, describe
from engine import errors
from engine.service import protocol

ROOT = Path(__file__).parents[2]
CLASS_NAME = re.compile(r"\b[A-Z][A-Za-z]*(?:Error|Exception|Warning)\b")
# Where a class's name is put into words, and why nobody reads them in a message. A new place says why here.
FOR_MACHINES_AND_LOGS = {
    "app/user_messages.py": "the details of a message, behind a button",
    "app/desktop/shareable_log.py": "the report",
    "app/desktop/desktop_bus.py": "the log",
    "app/desktop/single_instance.py": "the log",
    "engine/library/updates/release.py": "the log",
    "app/clients/engine_worker.py": "the kind of failure, as data",
    "engine/errors.py": "the kind of failure, as data",
    "engine/service/stdio.py": "the kind of failure, as data",
    "engine/service/request_events.py": "the kind of failure, as data; a crash's own words, which stay in the details",
    "engine/library/hub/download_queue.py": "the kind of failure, as data",
    "engine/commands/pull.py": "the kind of failure, as JSON",
    "engine/library/hub/system_keyring.py": "the log",
    "engine/text/vocabulary.py": "compared, and the kind of a JSON value",
    "engine/formats/torch_pickle.py": "the kind of a value in a file",
    "engine/formats/pickle_machine.py": "the kind of a value in a file",
    "engine/text/pattern_cost.py": "compared",
    "engine/text/template_sandbox.py": "the kind of a template's value",
    "app/tools/tool_error.py": "the log",
    "app/diagrams/process.py": "the log",
    "engine/machine/hardware.py": "the kind of a JSON value",
}
SHOWN = re.compile(r"type\((?:error|why|exc|failure|value|obj|exception|self|key|template)\)\.__name__")


def test_no_new_place_writes_the_name_of_a_class() -> None:
    files = [path for name in ("app", "engine") for path in sorted((ROOT / name).rglob("*.py"))]
    found = {path.relative_to(ROOT).as_posix() for path in files if SHOWN.search(path.read_text(encoding="utf-8"))}
    assert found - FOR_MACHINES_AND_LOGS.keys() == set()


def _kinds() -> list[type[errors.EngineError]]:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    return [kind for kind in kinds if issubclass(kind, errors.EngineError)]


def _read(message: UserMessage) -> str:
    return " ".join((message.title, message.sentence, message.remedy, *(message.second or ())[:1]))


@pytest.mark.parametrize("during", [None, "load", "answer", "download", "prepare", "import", "search", "server"])
def test_messages_of_every_failure_hold_no_class_name(during: str | None) -> None:
    told = [describe(kind("It did not work.", "Try again."), during=during, model="Pip") for kind in _kinds()]
    told += [
        describe(protocol.Failed("1", kind.__name__, "It did not work.", ""), during=during, model="Pip")
        for kind in _kinds()
    ]
    told.append(describe(protocol.Failed("1", "ZeroDivisionError", "division by zero", "", True), during=during))
    told.append(describe(KeyError("x"), during=during))
    assert [_read(one) for one in told if CLASS_NAME.search(_read(one))] == []


def test_an_engines_words_that_hold_a_class_name_are_not_shown() -> None:
    why = errors.EngineError("ValueError: it did not work.", "NoKeyringError")
    assert CLASS_NAME.search(_read(describe(why, during="answer"))) is None
