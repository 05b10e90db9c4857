"""Files of chats, personas, settings and catalogues with random damage: read or refused in words, within the limits."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from limits import MOST_SECONDS

from app.chat.answers.personas import Persona, Personas
from app.chat.store.chat_files import read_json, write_json
from app.chat.store.conversation import Conversation, Message, Role, WholeChat
from app.chat.store.preset_store import PresetStoreError
from app.errors import ChatFileError
from app.settings import AppSettings, load_settings, save_settings
from engine.assets import asset_root
from engine.errors import EngineError
from engine.library.estimate.catalogue import load_catalogue

EVERY_DAY, SLOW = 250, 4_000
ODD: tuple[bytes, ...] = (
    b"null", b"-1", b"1e999", b"NaN", b'""', b"[]", b"{}", b"[[[[" * 400, b'{"a":' * 400, b"\x00", b"\xff\xfe",
    b"\\ud800", b"9" * 5000, b"true", b'"\\u202e"', b"1.5", b'"<|im_end|>"', b'"\x1b[2J"',
)  # fmt: skip


def damaged(data: bytes, rng: Random) -> bytes:
    """The file with up to four of its places cut, doubled, turned or replaced by something odd."""
    found = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(found) + 1)
        end = min(len(found), at + rng.choice((1, 1, 4, 40, 400)))
        match rng.randrange(5):
            case 0:
                del found[at:end]
            case 1:
                found[at:at] = found[at:end]
            case 2 if at < len(found):
                found[at] ^= 1 << rng.randrange(8)
            case 3:
                found[at:end] = rng.choice(ODD)
            case _:  # a whole value, so that what follows is still JSON
                start = found.find(b": ", at)
                stop = min((i for i in (found.find(b, start + 2) for b in (b",", b"}", b"\n")) if i > 0), default=0)
                if 0 < start < stop:
                    found[start + 2 : stop] = rng.choice(ODD)
    return bytes(found)


def chats(folder: Path) -> tuple[bytes, Callable[[Path], object]]:
    one = Conversation(title="A fox by the sea")
    messages = [Message(Role.USER, "Hello"), Message(Role.ASSISTANT, "Good day.", stats={"tokens": 3})]
    write_json(folder / "sound.json", [WholeChat(one, tuple(messages))])
    return (folder / "sound.json").read_bytes(), read_json


def personas(folder: Path) -> tuple[bytes, Callable[[Path], object]]:
    shelf = Personas(folder / "sound.json")
    for i in range(3):
        shelf.put(Persona(f"p{i}", f"Cook {i}", "You cook."))
    shelf.save(shelf.to_json())
    return (folder / "sound.json").read_bytes(), lambda file: Personas().import_file(file)


def settings(folder: Path) -> tuple[bytes, Callable[[Path], object]]:
    save_settings(folder / "sound.json", AppSettings())
    return (folder / "sound.json").read_bytes(), lambda file: dataclasses.asdict(load_settings(file)[0])


def catalogue(folder: Path) -> tuple[bytes, Callable[[Path], object]]:
    values = json.loads((asset_root() / "catalogue.json").read_text("utf-8"))
    values["models"] = values["models"][:2]
    return json.dumps(values, indent=1).encode(), load_catalogue


@pytest.mark.parametrize("kind", [chats, personas, settings, catalogue], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("count", [EVERY_DAY, pytest.param(SLOW, marks=pytest.mark.slow)])
def test_damage_anywhere(
    tmp_path: Path, kind: Callable[[Path], tuple[bytes, Callable[[Path], object]]], count: int
) -> None:
    sound, read = kind(tmp_path)
    was_read = 0
    for seed in range(count):
        file = tmp_path / f"{seed}.json"  # who reads may remember a file
        file.write_bytes(damaged(sound, Random(seed)))
        started = time.process_time()
        try:
            json.dumps(read(file), default=str)
            was_read, said = was_read + 1, "it was read"
        except (ChatFileError, PresetStoreError, EngineError) as error:
            said = str(error)
        except Exception as error:
            raise AssertionError(f"{kind.__name__}, seed {seed}") from error
        assert 0 < len(said) < 600, seed
        assert time.process_time() - started < MOST_SECONDS, seed
    assert 0 < was_read < count or (was_read == count and kind is settings)  # what is no setting is the default
