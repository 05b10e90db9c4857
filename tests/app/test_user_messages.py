"""What people read when something fails: every failure has words, and all words keep the product's tone."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from support.shown_text import numbers_in

import engine
from app import library_messages
from app import user_messages as module
from app.engine_text import plain_figures
from app.errors import RescueReport, StoreError, StoreErrorKind
from app.settings import SettingsError
from app.user_messages import (
    Action,
    UserMessage,
    describe,
    describe_engine_death,
    describe_library_death,
    describe_settings_problem,
)
from engine import errors
from engine.service import protocol

KINDS: tuple[StoreErrorKind, ...] = get_args(StoreErrorKind)
INSIDE = "tensor blk.3.ffn_up.weight ends 4096 bytes past the file (0x1F, errno 28)"


def engine_errors() -> list[type[errors.EngineError]]:
    """Every class of failure that the engine has, wherever it is declared."""
    for found in pkgutil.walk_packages(engine.__path__, "engine."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)

    def walk(cls: type[errors.EngineError]) -> Iterator[type[errors.EngineError]]:
        yield cls
        for sub in cls.__subclasses__():
            yield from walk(sub)

    return sorted({cls for cls in walk(errors.EngineError) if cls.__module__.startswith("engine.")}, key=str)


def fact_for(cls: type[errors.EngineError]) -> str:
    """A message as the engine writes them: only the one about a missing model is fit to be shown with its names."""
    return "There is no model at /home/ann/pip.gguf." if cls is errors.ModelNotFoundError else INSIDE


def every_message() -> Iterator[UserMessage]:
    for cls in engine_errors():
        for during in ("load", "answer", None, *library_messages.TITLES):
            for is_starter in (False, True):
                yield describe(cls(fact_for(cls)), during=during, is_starter=is_starter)
    for during in ("load", "answer", None, *library_messages.TITLES):
        failed = protocol.Failed("1", "ZeroDivisionError", "division by zero", "", True, "Traceback ...")
        yield describe(failed, during=during)
    for kind in KINDS:
        for path in (None, Path("/home/ann/Hearth/chats.db")):
            error = StoreError(kind, "database or disk is full (SQLITE_FULL).", path, 123_000_000)
            yield describe(error)
            for counts in ((0, 0), (1, 1), (1200, 34567)):
                yield describe(RescueReport(error, *counts, kept_aside=Path("/home/ann/Hearth/chats-damaged.db")))
            yield describe(RescueReport(error, 1, 1, in_memory=True))
    yield describe(SettingsError("Errno 28: no space.", Path("/home/ann/settings.json")))
    yield describe(KeyError("x"))
    yield describe_settings_problem("text_px is 9; it must be between 10 and 24.")
    yield describe_engine_death("The engine's process crashed (SIGSEGV).", restarting=True)
    yield describe_engine_death("The engine's process crashed (SIGSEGV).", restarting=False)
    yield describe_library_death("The library's process crashed (SIGSEGV).")


def test_every_engine_error_has_words_of_its_own() -> None:
    classes = engine_errors()
    assert len(classes) > 12
    without = [cls.__name__ for cls in classes if cls.__name__ not in module._ENGINE_WORDS]
    assert not without, f"no words in app/user_messages.py for {without}"
    assert not set(module._ENGINE_WORDS) - {cls.__name__ for cls in classes}
    assert not set(library_messages.SENTENCES) - {cls.__name__ for cls in classes}


def test_a_job_beside_the_chat_speaks_of_itself() -> None:
    gated = errors.GatedModelError("Accept the terms at https://hub.invalid/meta/llama first.")
    message = describe(gated, during="download", model="ReluLLaMA 70B")
    assert message.title == library_messages.TITLES["download"].format(model="ReluLLaMA 70B")
    assert message.remedy_action == "enter-token"
    assert "https://hub.invalid/meta/llama" in message.details
    died = protocol.Failed("1", "EngineProcessError", "It died.", "")
    assert describe(died, during="import").title == library_messages.TITLES["import"]
    assert "chat" not in describe(died, during="import").sentence
    full = errors.DiskSpaceError("14.6 GB is needed and 3.1 GB is free.")
    assert numbers_in(describe(full, during="download", model="Bamboo").sentence) == ["14.6 GB", "3.1 GB"]


def test_all_words_keep_the_tone() -> None:
    for message in every_message():
        said = f"{message.title} {message.sentence}"
        assert message.title[0].isupper(), message
        assert not message.title.endswith("."), message
        assert message.sentence.endswith("."), message
        assert "{" not in said, message
        assert not re.search(r"!|Oops|\bError\b|[Ee]rror:|\bI\b|SQLITE|SIG[A-Z]|errno|0x|blk\.", said), message
        assert not re.search(r"(?i)\b(sorry|please|device|response|offload|failed)\b", said), message
        assert not re.search(r"\d (GB|MB|GiB|MiB)\b", said), message
        assert len(message.sentence) < 220, message


def test_every_message_has_a_remedy_that_the_window_knows() -> None:
    for message in every_message():
        assert message.severity in {"bad", "warn", "info"}
        if not message.remedy_action:  # a bug of ours outside loading and answering: there is only the report to read
            assert not message.remedy
            assert message.second is None
            assert message.details
            continue
        assert message.remedy, message
        assert message.remedy_action in list(Action), message
        assert type(message.remedy_action) is str
        if message.second is not None:
            words, action = message.second
            assert words != message.remedy
            assert action in list(Action)
            assert action != message.remedy_action


def test_the_facts_are_in_the_details() -> None:
    for cls in engine_errors():
        details = describe(cls(INSIDE, "Do this.")).details
        assert cls.__name__ in details
        assert INSIDE in details
        assert "Do this." in details


def test_memory_is_told_with_need_and_have() -> None:
    message = describe(
        errors.HostMemoryError("The model needs 12.48 GiB of free RAM; 8.475 GiB are free."), model="ProSparse 13B"
    )
    assert message.title.startswith("ProSparse 13B ")
    assert numbers_in(message.sentence)[:2] == ["13.4 GB", "9.1 GB"]


@pytest.mark.parametrize(
    "hint",
    [
        "Use a context of 1024 tokens: it fits then.",
        "Use the model in Q4_0, which takes 3.9 GiB.",
        "Close other programs until 2.0 GiB of RAM are free.",
    ],
)
def test_a_model_that_is_too_large_is_told_with_something_that_works(hint: str) -> None:
    fact = (
        "Bamboo-7B.f16 needs 39.4 GiB of memory with a context of 4096 tokens; 17.0 GiB of RAM and 9.5 GiB of the "
        "RTX 2080 Ti's memory may be used."
    )
    failed = protocol.Failed("1", "HostMemoryError", fact, hint)
    message = describe(failed, during="load", model="Bamboo-7B.f16")
    assert message.sentence == plain_figures(f"{fact} {hint}")
    assert "42.3\u202fGB" in message.sentence


def test_a_message_with_a_name_from_inside_is_replaced() -> None:
    message = describe(errors.HostMemoryError("The memory ran out while loading model.layers.3.mlp."))
    assert "layers" not in message.sentence
    assert "layers" in message.details
    overflow = describe(errors.ContextOverflowError("The message has 700 tokens and the context holds 512."))
    assert overflow.sentence == "The message has 700 tokens and the context holds 512."
    assert overflow.remedy_action == "new-chat"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("needs 1073741824 bytes", "needs 1.1\u202fGB"),
        ("64 MiB", "67\u202fMB"),
        ("13.4 GB is free", "13.4\u202fGB is free"),
        ("4096 bytes", "4096 bytes"),
        ("39.1 tok/s in 25.6 ms", "39.1\u202ftok/s in 25.6\u202fms"),
        ("3 models", "3 models"),
    ],
)
def test_figures_are_written_as_the_product_writes_them(text: str, shown: str) -> None:
    assert plain_figures(text) == shown


def test_what_comes_over_the_wire_reads_the_same() -> None:
    error = errors.ModelFormatError("The file ends early.")
    failed = protocol.Failed("1", "ModelFormatError", error.message, error.hint)
    assert describe(failed, during="load", model="Pip") == describe(error, during="load", model="Pip")
    assert describe(error, model="Pip").title == module._TITLES["load"].format(model="Pip")
    assert describe(error, during="answer").title == module._TITLES["answer"]


def test_a_model_without_a_name_reads_well_anywhere_in_a_title() -> None:
    assert describe(errors.ModelFormatError(""), during="load").title.endswith(" the model")
    assert describe(errors.HostMemoryError("")).title.startswith("The model ")


def test_a_class_of_another_version_still_has_words() -> None:
    message = describe(protocol.Failed("1", "FrostbiteError", "The room is too cold.", "Light a fire."))
    assert message.sentence == "The room is too cold."
    assert "FrostbiteError" in message.details


def test_a_bug_of_ours_says_so_and_keeps_the_traceback() -> None:
    failed = protocol.Failed("1", "ZeroDivisionError", "division by zero", "", crash=True, details="Traceback: line 7")
    message = describe(failed, during="answer")
    assert message.title not in module._TITLES.values(), "not a failure that was expected"
    assert "ZeroDivisionError: division by zero" in message.details
    assert "Traceback: line 7" in message.details
    assert message.remedy_action == "send-again"
    try:
        raise KeyError("lost")
    except KeyError as error:
        message = describe(error)
    assert "KeyError: 'lost'" in message.details
    assert message.remedy_action == ""


def test_the_starter_model_is_no_remedy_for_itself() -> None:
    error = errors.ModelFormatError("The file ends early.")
    assert describe(error).remedy_action == "load-starter"
    message = describe(error, is_starter=True)
    assert message.remedy_action == "retry-load"
    assert message.second is None
    assert message.sentence.endswith(module._INSTALL_AGAIN)


@pytest.mark.parametrize(("fact", "file"), [
    ("My model Q4.gguf is not a sound GGUF file: tensor a.b ends 9 bytes past the file.", "My model Q4.gguf"),
    ("tokenizer.json has no JSON object.", "tokenizer.json"),
    ("rope_theta in config.json is nothing; a number is needed.", "config.json"),
    ("Tensor blk.0.ffn_up.weight holds values that are not numbers.", ""),
    ("The weights lack blk.0.ffn_up.weight.", ""),
])  # fmt: skip
@pytest.mark.parametrize("during", ["load", "import"])
def test_a_damaged_file_is_named(during: str, fact: str, file: str) -> None:
    sentence = describe(errors.ModelFormatError(fact), during=during, model="My model").sentence
    assert sentence.startswith(f"{file} ") if file else "blk." not in sentence
    assert "{" not in sentence


def test_a_full_disk_says_what_is_free() -> None:
    message = describe(StoreError("full", "database or disk is full.", Path("/d/chats.db"), 12_000_000))
    assert numbers_in(message.sentence) == ["12 MB"]
    assert message.remedy_action == "retry-save"


def test_a_rescue_says_how_much_came_over() -> None:
    error = StoreError("damaged", "malformed", Path("/d/chats.db"))
    message = describe(RescueReport(error, 3, 1200, kept_aside=Path("/d/chats-damaged-1.db")))
    assert numbers_in(message.sentence) == ["3", "1,200"]
    assert str(Path("/d/chats-damaged-1.db")) in message.details
    assert message.severity == "warn"


def test_no_qt_is_needed() -> None:
    code = "import sys; sys.modules['PySide6'] = None; import app.user_messages, app.chat.store.store, app.settings"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(module.__file__).parents[1], timeout=300)
