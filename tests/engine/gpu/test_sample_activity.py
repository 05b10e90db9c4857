"""The first load of a model without statistics learns from sample texts which neurons are active."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes.gpu_machine import GIB, FakeGpuMachine
from samples.tiny_model import make_tiny_model

from engine.bundle.artefacts import save_stats
from engine.config import EngineConfig
from engine.errors import Cancelled, ChatTemplateError, DeviceFailedError
from engine.evaluation.evaluate import last_logits
from engine.executor.adaptation import Adaptation
from engine.gpu import sample_activity
from engine.gpu.token.transformer import GpuTransformer
from engine.job import Job
from engine.loading import sample_text
from engine.loading.sample_text import mixed_tokens
from engine.model.weights import open_model
from engine.placement import memory_plan
from engine.session.loaded_model import LoadedModel
from engine.sparsity.stats import NeuronStats
from engine.text.tokenizer import Tokenizer

PROMPT = [1, 5, 9, 40, 7]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpuMachine]:
    made = FakeGpuMachine(tmp_path, monkeypatch)
    yield made
    for gpu in made.gpus:
        gpu.close()


@pytest.fixture
def for_half(machine: FakeGpuMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, float]:
    """A model without statistics, and a budget in GiB for half of its neurons. Nothing has been learned of it."""
    monkeypatch.setattr(memory_plan, "gpu_scratch_bytes", lambda *of: 0)
    monkeypatch.setattr(memory_plan, "pinned_bytes", lambda *of: 0)
    path = make_tiny_model(tmp_path / "half", d_ff=256)
    whole = machine.load(path)
    assert whole.gpu is not None
    assert not Adaptation(whole.opened).activity.positions, "the GPU has all neurons"
    room = (whole.gpu.placement.vram_bytes - whole.gpu.placement.hot_bytes // 2) / GIB
    whole.close()
    return path, room


def test_a_first_load_learns_which_neurons_are_active(
    machine: FakeGpuMachine, for_half: tuple[Path, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, room = for_half
    texts: list[int] = []
    sample = sample_activity.mixed_tokens

    def watched(tokenizer: Tokenizer, n_tokens: int) -> list[int]:
        texts.append(n_tokens)
        return sample(tokenizer, n_tokens)

    monkeypatch.setattr(sample_activity, "mixed_tokens", watched)
    model = machine.load(path, vram_budget_gib=room)
    activity, blocks = Adaptation(model.opened).activity, model.hot_blocks
    assert blocks is not None
    assert activity.positions > 16
    assert model.transformer().executor.counters.tokens == 0, "an answer's figures leave them out"
    assert 0 < sum(table.n_slots for table in blocks.tables) < activity.counts.size
    for counts, table in zip(activity.counts, blocks.tables, strict=True):
        covered, best = counts[table.neuron_in].sum(), np.sort(counts)[::-1][: table.n_slots].sum()
        assert covered >= 0.999 * best
    found, hot = last_logits(model, PROMPT), [table.neuron_in.copy() for table in blocks.tables]
    model.close()
    again = machine.load(path, vram_budget_gib=room)
    assert len(texts) == 1, "the next load knows"
    assert again.hot_blocks is not None
    for table, ids in zip(again.hot_blocks.tables, hot, strict=True):
        np.testing.assert_array_equal(np.sort(table.neuron_in), np.sort(ids))
    np.testing.assert_array_equal(last_logits(again, PROMPT), found)
    on_cpu = LoadedModel.load(path, EngineConfig(device="cpu", threads=1))
    np.testing.assert_allclose(found, last_logits(on_cpu, PROMPT), atol=1e-3)
    again.close()


@pytest.mark.parametrize("how", ["adapt", "statistics", "the GPU fails", "no prompts"])
def test_what_is_not_learned_at_a_load(
    how: str, machine: FakeGpuMachine, for_half: tuple[Path, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, room = for_half
    if how == "statistics":
        opened = open_model(path)
        counts = np.ones((opened.config.n_layers, 256), np.int64)
        stats = NeuronStats(counts, 1, "measured", "a text", opened.fingerprint, opened.config.activation_text)
        save_stats(opened, stats)
    if how == "the GPU fails":

        def fails(*of: Any, **how: Any) -> None:
            raise DeviceFailedError("It failed.")

        monkeypatch.setattr(GpuTransformer, "prefill", fails)
    if how == "no prompts":
        monkeypatch.setattr(sample_text, "asset_root", lambda: path)
    model = machine.load(path, vram_budget_gib=room, adapt=how != "adapt")
    assert model.device == "cuda"
    assert not Adaptation(model.opened).activity.positions
    model.close()


def test_a_load_is_cancelled_while_it_learns(
    machine: FakeGpuMachine, for_half: tuple[Path, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, room = for_half
    learning: list[bool] = []
    sample = sample_activity.mixed_tokens

    def begun(tokenizer: Tokenizer, n_tokens: int) -> list[int]:
        learning.append(True)
        return sample(tokenizer, n_tokens)

    monkeypatch.setattr(sample_activity, "mixed_tokens", begun)
    with pytest.raises(Cancelled):
        LoadedModel.load(path, machine.config(vram_budget_gib=room), Job(lambda: bool(learning)))
    assert not Adaptation(open_model(path)).activity.positions


def test_learning_tells_its_progress(machine: FakeGpuMachine, for_half: tuple[Path, float]) -> None:
    path, room = for_half
    told: list[tuple[int, int]] = []
    config = machine.config(vram_budget_gib=room)
    model = LoadedModel.load(path, config, Job(progress=lambda done, total: told.append((done, total))))
    whole = model.weights.n_bytes
    assert sum(total == whole and 0 < done < whole for done, total in told) > 0
    assert all(0 <= done <= total for done, total in told)
    model.close()


class Words:
    """A tokenizer with one token for each character, whose chat template does as it is told."""

    chat_template = "a template"

    def __init__(self, fails: bool = False) -> None:
        self.fails, self.rendered = fails, 0

    def encode(self, text: str, add_bos: bool = False) -> list[int]:
        return [1] * add_bos + [ord(char) for char in text]

    def encode_chat(self, messages: Any) -> list[int]:
        self.rendered += 1
        if self.fails:
            raise ChatTemplateError("It takes no message of a user alone.")
        return [2, *self.encode(messages[0]["content"])]


def test_sample_texts_are_chats_and_other_texts_of_the_wanted_length() -> None:
    words: Any = Words()
    tokens = mixed_tokens(words, 3000)
    assert len(tokens) == 3000
    assert tokens[0] == 1
    assert 5 < tokens.count(2) == words.rendered
    assert tokens.count(10) > tokens.count(2), "texts that are not chats end with a line"
    assert tokens == mixed_tokens(words, 9000)[:3000]
    assert len(mixed_tokens(words, 10**6)) < 10**5, "all that there are"


@pytest.mark.parametrize("how", ["fails", "is slow"])
def test_a_template_that_fails_or_is_slow_is_not_used_again(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(sample_text, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    words: Any = Words(how == "fails")
    assert len(mixed_tokens(words, 3000)) == 3000
    assert words.rendered == 1
