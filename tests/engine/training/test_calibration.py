"""Calibration text: an exact mixture of kinds, the same for a seed, kept, and our own prompts in good order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import platformdirs
import pytest
from samples.tiny_model import make_tiny_model

from engine import assets
from engine.config import EngineConfig
from engine.errors import Cancelled, ModelNotFoundError
from engine.job import Job
from engine.loading import sample_text
from engine.session.loaded_model import LoadedModel
from engine.training import calibration, prompts
from engine.training.calibration import write_portion
from engine.training.prompts import KINDS, encode_prompt, read_prompts, recipe_fingerprint, usable_kinds

SIZE = 660


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return LoadedModel.load(make_tiny_model(tmp_path_factory.mktemp("m")), EngineConfig(backend="reference"))


@pytest.fixture
def kept(own_folders: Path) -> Callable[[], list[Path]]:
    return lambda: sorted(own_folders.rglob("*.npz"))


def test_a_portion_has_each_kind_in_its_share(model: LoadedModel, kept: Callable[[], list[Path]]) -> None:
    steps: list[tuple[int, int]] = []
    portion = write_portion(model, 0, size=SIZE, job=Job(progress=lambda *step: steps.append(step)))
    sizes = {name: sum(map(len, texts)) for name, texts in portion.items()}
    assert sizes == {"questions": 100, "dialogue": 200, "free": 100, "prose": 100, "encyclopedia": 100,
                     "code": 20, "tables": 20, "languages": 20}  # fmt: skip
    assert steps[-1] == (SIZE, SIZE)
    assert steps == sorted(steps)
    assert all(text[0] == model.bos_token_id for texts in portion.values() for text in texts)
    assert len(kept()) == 1


def test_it_is_the_same_for_a_seed_and_written_once(
    model: LoadedModel, kept: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write_portion(model, 0, size=SIZE)
    kept()[0].unlink()
    assert write_portion(model, 0, size=SIZE) == first
    assert write_portion(model, 1, size=SIZE) != first
    assert write_portion(model, 0, 1, SIZE) != first
    monkeypatch.setattr(calibration, "_write", None)
    assert write_portion(model, 0, size=SIZE) == first


@pytest.mark.parametrize("damage", ["cut", "empty", "ids", "lengths", "kinds", "missing", "other"])
def test_what_is_kept_is_not_trusted(model: LoadedModel, kept: Callable[[], list[Path]], damage: str) -> None:
    first = write_portion(model, 0, size=SIZE)
    path = kept()[0]
    with np.load(path) as arrays:
        ids, kinds, lengths = arrays["ids"], arrays["kinds"], arrays["lengths"]
    if damage in ("cut", "empty"):
        path.write_bytes(path.read_bytes()[: 100 if damage == "cut" else 0])
    elif damage == "missing":
        np.savez(path, ids=ids)
    else:
        ids = ids + 100_000 if damage == "ids" else ids
        lengths = lengths + 1 if damage == "lengths" else lengths
        kinds = kinds + 50 if damage == "kinds" else kinds
        ids = ids.astype(np.float64) if damage == "other" else ids
        np.savez(path, ids=ids, kinds=kinds, lengths=lengths)
    assert write_portion(model, 0, size=SIZE) == first


def test_portions_differ_and_have_their_size(model: LoadedModel) -> None:
    steps: list[tuple[int, int]] = []
    first, second = (
        write_portion(model, number, size=SIZE, job=Job(progress=lambda *step: steps.append(step))) for number in (0, 1)
    )
    for portion in (first, second):
        assert sum(len(text) for texts in portion.values() for text in texts) == SIZE
    assert first != second
    assert steps[-1] == (SIZE, SIZE)


def test_it_stops_and_nothing_is_kept(model: LoadedModel, own_folders: Path) -> None:
    with pytest.raises(Cancelled):
        write_portion(model, 0, size=SIZE, job=Job(lambda: True))
    assert not list(own_folders.rglob("*.npz*"))


def test_a_cache_that_takes_nothing_is_no_failure(model: LoadedModel) -> None:
    cache = Path(platformdirs.user_cache_dir("Hearth", appauthor=False))
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text("no folder")
    assert sum(len(text) for texts in write_portion(model, 0, size=80).values() for text in texts) == 80


# --- the prompts


def test_there_are_a_few_hundred_prompts_of_many_kinds_and_none_twice() -> None:
    found = {kind.name: read_prompts(kind) for kind in KINDS}
    every = [prompt for kind in found.values() for prompt in kind]
    assert len(every) > 250
    assert len(set(every)) == len(every)
    assert all(prompt == prompt.strip("\n") for prompt in every)
    assert all(prompt for kind, prompts in found.items() for prompt in prompts if kind != "free")
    files = {path.stem for path in (assets.asset_root() / "calibration").glob("*.txt")}
    assert files == {kind.name for kind in KINDS if kind.form != "free"}


def test_chats_go_through_the_template_and_texts_begin_with_bos(model: LoadedModel) -> None:
    by_name = {kind.name: kind for kind in KINDS}
    chat = model.tokenizer.decode(encode_prompt(model, by_name["questions"], "Why?"), skip_special=False)
    assert chat == "<|begin|><|user|>Why?<|end|><|assistant|>"
    text = model.tokenizer.decode(encode_prompt(model, by_name["prose"], "Once"), skip_special=False)
    assert text == "<|begin|>Once"
    assert encode_prompt(model, by_name["free"], "") == [model.bos_token_id]
    assert len(encode_prompt(model, by_name["prose"], "word " * 100)) == model.opened.config.max_context // 2


def test_a_model_without_a_template_goes_on_with_the_message(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.tokenizer, "chat_template", None)
    ids = encode_prompt(model, next(kind for kind in KINDS if kind.form == "chat"), "Why?")
    assert model.tokenizer.decode(ids, skip_special=False) == "<|begin|>Why?\n"


def test_without_bos_nothing_is_written_freely(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(model), "bos_token_id", None)
    assert "free" not in {kind.name for kind in usable_kinds(model)}


def test_the_recipe_names_every_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = recipe_fingerprint()
    monkeypatch.setattr(prompts, "read_prompts", lambda kind: ["something else"])
    assert recipe_fingerprint() != before
    monkeypatch.undo()
    monkeypatch.setattr(sample_text, "asset_root", lambda: tmp_path)
    with pytest.raises(ModelNotFoundError, match="calibration"):
        recipe_fingerprint()
