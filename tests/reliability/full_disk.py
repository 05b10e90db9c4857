"""Writes what Hearth keeps while no file may grow beyond so many bytes, and looks at what is left: the old or the new.

Run as a program: a child with the limit (RLIMIT_FSIZE) is forked for every act and every limit. An act may only end
well, or in a failure of the world that has words for a person. Prints one JSON object: acts, how many ended each way,
faults. Arguments: where to work, and at most how many limits for an act.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from samples.tiny_model import make_tiny_model

from app.chat.answers.mode_rates import ModeRates
from app.chat.answers.personas import Persona, Personas
from app.chat.store.chat_files import write_json
from app.chat.store.conversation import Conversation, Message, Role, WholeChat
from app.chat.store.store import Store
from app.errors import StoreError
from app.models.model_choices import ModelChoices
from app.settings import AppSettings, SettingsError, load_settings, save_settings
from engine.bundle import artefacts
from engine.bundle.bundle import open_bundle, verify
from engine.conversion.convert import convert
from engine.errors import EngineError
from engine.library.owned.installed import Library
from engine.model.model_files import open_model
from engine.sparsity.predictor import LayerPredictor, LowRank, Predictor
from engine.sparsity.stats import NeuronStats
from native_kernels.backend import PackedMatrix

WORDS = "The fox lived by the sea and told stories of rain. "
FAILURES_OF_THE_WORLD = (StoreError, SettingsError, EngineError, OSError)


@dataclass(frozen=True)
class Act:
    """begin: what is there before, in an empty folder. do: what may fail. check: raises where what is left is not
    sound; gives what it is, which must be as before or as after."""

    begin: Callable[[Path], object]
    do: Callable[[Path], object]
    check: Callable[[Path], object]


def chat(title: str, texts: int) -> WholeChat:
    one = Conversation(title=title)
    return WholeChat(one, tuple(Message(Role.USER, f"{i} {WORDS * 100}") for i in range(texts)))


def store_with(texts: int) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        store = Store.open(folder / "chats.db")
        for i in range(texts):
            store.add_chats([chat(f"chat {i}", 3)])
        store.close()

    return write


def titles(folder: Path) -> object:
    store, report = Store.rescue(folder / "chats.db")
    assert report is None, report
    found = store.conversations()
    assert all(len(store.messages(one.id)) == 3 for one in found), "a chat is there in part"
    store.close()
    return len(found)


def stats(number: int) -> NeuronStats:
    return NeuronStats(np.full((2, 64), number, np.int64), 100, "measured", WORDS * 50)


def keep_stats(number: int) -> Callable[[Path], object]:
    return lambda folder: artefacts.save_stats(open_model(folder / "bundle"), stats(number))


def keep_predictor(number: int) -> Callable[[Path], object]:
    a, b = (PackedMatrix.pack(np.full(shape, number, np.float32), "f16") for shape in ((16, 32), (64, 16)))
    made = Predictor((LayerPredictor(LowRank(a, b, threshold=number)),) * 2, text=WORDS * 50)
    return lambda folder: artefacts.save_predictor(open_model(folder / "bundle"), made)


def keep_artefacts(number: int) -> Callable[[Path], object]:
    return lambda folder: (keep_stats(number)(folder), keep_predictor(number)(folder))


def a_bundle(folder: Path) -> Path:
    return convert(make_tiny_model(folder / "source"), folder / "bundle", "q8_0").bundle


def kept_stats(folder: Path) -> object:
    opened = open_model(folder / "bundle")
    verify(open_bundle(folder / "bundle"))
    found = artefacts.find(opened, "statistics")
    return None if found is None else int(artefacts.load_stats(opened).counts[0, 0])


def kept_predictor(folder: Path) -> object:
    opened = open_model(folder / "bundle")
    verify(open_bundle(folder / "bundle"))
    if artefacts.find(opened, "predictors") is None:
        return None
    return int(artefacts.load_predictor(opened).layers[0].low_rank.threshold)  # type: ignore[union-attr]


def converted(folder: Path) -> object:
    if not (folder / "bundle").exists():
        return False
    verify(open_bundle(folder / "bundle"))
    return True


def personas(name: str) -> Callable[[Path], object]:
    def save(folder: Path) -> None:
        shelf = Personas(folder / "personas.json")
        shelf.read()
        shelf.put(Persona(id=name, name=name, instructions=WORDS * 20))
        shelf.save(shelf.to_json())

    return save


def kept_personas(folder: Path) -> object:
    shelf = Personas(folder / "personas.json")
    shelf.read()
    return sorted(one.name for one in shelf.own)


def choices(model: str) -> Callable[[Path], object]:
    return lambda folder: ModelChoices(folder / "choices.json").save({"schema_version": 1, "models": {model: {}}})


def kept_json(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        return json.loads((folder / name).read_text()) if (folder / name).exists() else None

    return read


def taken_in(folder: Path) -> object:
    return Library(folder / "models").add(folder / "source", True)


def listed(folder: Path) -> object:
    library = Library(folder / "models")
    found = sorted(one.id for one in library.models() if one.owned and one.id != "starter-chat")
    assert all(library.verify(id) == [] for id in found if library.get(id).files)
    return len(found)


ACTS: dict[str, Act] = {
    "chats": Act(store_with(3), store_with(1), titles),
    "the first chat": Act(lambda folder: None, store_with(1), titles),
    "settings": Act(
        lambda folder: save_settings(folder / "s.json", AppSettings(last_conversation="before")),
        lambda folder: save_settings(folder / "s.json", AppSettings(last_conversation="after")),
        lambda folder: load_settings(folder / "s.json")[0].last_conversation,
    ),
    "personas": Act(personas("one"), personas("two"), kept_personas),
    "choices": Act(choices("a"), choices("b"), kept_json("choices.json")),
    "rates": Act(
        lambda folder: ModeRates(folder / "rates.json").save({"models": {"a": {}}}),
        lambda folder: ModeRates(folder / "rates.json").save({"models": {"b": {}}}),
        kept_json("rates.json"),
    ),
    "a file of chats": Act(
        lambda folder: write_json(folder / "out.json", [chat("before", 1)]),
        lambda folder: write_json(folder / "out.json", [chat("after", 1)]),
        lambda folder: json.loads((folder / "out.json").read_text())["chats"][0]["title"],
    ),
    "statistics": Act(lambda folder: (a_bundle(folder), keep_stats(1)(folder)), keep_stats(2), kept_stats),
    "predictors": Act(lambda folder: (a_bundle(folder), keep_artefacts(1)(folder)), keep_predictor(2), kept_predictor),
    "a bundle": Act(
        lambda folder: make_tiny_model(folder / "source"),
        lambda folder: convert(folder / "source", folder / "bundle", "q8_0"),
        converted,
    ),
    "a model that is taken in": Act(lambda folder: make_tiny_model(folder / "source"), taken_in, listed),
}  # fmt: skip


def limited(do: Callable[[Path], object], folder: Path, limit: int | None) -> str:
    """How it ended in a child of its own: "done", "refused", or what was raised."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            do(folder)
            told = "done"
        except FAILURES_OF_THE_WORLD:
            told = "refused"
        except BaseException as error:  # noqa: BLE001 - told to the parent
            told = repr(error)[:500]
        os.write(writing, told.encode())  # a pipe: the limit is none of its business
        os._exit(0)
    os.close(writing)
    told = os.read(reading, 4096).decode()
    os.close(reading)
    os.waitpid(child, 0)
    return told or "it died"


def largest(folder: Path) -> int:
    return max((path.stat().st_size for path in folder.rglob("*") if path.is_file()), default=0)


def tried(name: str, act: Act, folder: Path, most: int) -> tuple[dict[str, int], list[str]]:
    before = folder / "before"
    before.mkdir(parents=True)
    limited(act.begin, before, None)
    after = folder / "after"
    shutil.copytree(before, after)
    assert limited(act.do, after, None) == "done", name
    states = [act.check(before), act.check(after)]
    limits = np.unique(np.geomspace(1, largest(after) + 1, most - 1).astype(int)).tolist()
    ends, faults = {"done": 0, "refused": 0}, []
    for limit in [0, *limits]:
        work = folder / "work"
        shutil.copytree(before, work)
        told = limited(act.do, work, limit)
        ends[told] = ends.get(told, 0) + 1
        if told not in ("done", "refused"):
            faults.append(f"{name}, {limit} bytes: {told}")
        try:
            state = act.check(work)
            if state not in (states if told != "done" else states[1:]):
                faults.append(f"{name}, {limit} bytes, {told}: what is left is {state!r}, not one of {states!r}")
            if limited(act.do, work, None) not in ("done", "refused"):
                faults.append(f"{name}, {limit} bytes: it cannot be done again")
        except Exception as error:  # noqa: BLE001 - whatever it is
            faults.append(f"{name}, {limit} bytes, {told}: {error!r}")
        shutil.rmtree(work)
    return ends, faults


def main(folder: Path, most: int) -> dict[str, Any]:
    ends: dict[str, dict[str, int]] = {}
    faults: list[str] = []
    for number, (name, act) in enumerate(ACTS.items()):
        ends[name], found = tried(name, act, folder / str(number), most)
        faults += found
    return {"acts": ends, "faults": faults}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
