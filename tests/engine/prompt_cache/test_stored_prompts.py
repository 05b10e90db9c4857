"""Chats that go on from the prompt cache: the same answers as computed ones, for every kind of cache and placement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.gpu_machine import FakeGpuMachine
from samples.recurrent_model import make_recurrent_model
from samples.tiny_model import make_tiny_gguf

from engine.config import KV_CODECS, EngineConfig, KvCodec, SamplingConfig
from engine.job import Job
from engine.model.kv_cache import KVCache
from engine.prompt_cache.block_file import BLOCK_TOKENS
from engine.prompt_cache.store import PromptStore, keep_only
from engine.prompt_cache.stored_prompts import FEWEST_TOKENS, StoredPrompts
from engine.session.chat_session import ChatSession
from engine.session.generate import FEWEST_INSTRUCTIONS_TOKENS, TURN_END_TOKENS, TokenEvent
from engine.session.loaded_model import LoadedModel
from native_kernels.cuda.runtime.driver import CudaError
from native_kernels.kv_blocks import KvLayout, allocate, from_rows, read, to_rows, write

GREEDY = SamplingConfig(temperature=0, max_tokens=12)
CODECS = [codec if codec == "q8_0" else pytest.param(codec, marks=pytest.mark.slow) for codec in KV_CODECS]
LONG = BLOCK_TOKENS + 70  # tokens: a full block and a part of one


def prompt(n: int = LONG, seed: int = 1) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(1, 90, n)]


def ask(session: ChatSession, tokens: list[int], chat: str = "chat", **more: Any) -> list[TokenEvent]:
    return list(session.generate(tokens, GREEDY, chat=chat, **more))


def ids(events: list[TokenEvent]) -> list[int | None]:
    return [event.token_id for event in events]


class Prompts:
    """A prompt cache that sessions of several starts share."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._stores: list[PromptStore] = []

    def session(self, model: LoadedModel, quota_bytes: int = 1 << 30, ram_bytes: int = 64 << 20) -> ChatSession:
        """A session of a new start: nothing is in RAM."""
        self._stores.append(PromptStore(self.root, quota_bytes, ram_bytes))
        return ChatSession(model, prompts=StoredPrompts(self._stores[-1], model.opened, model.kv_codec))

    def end(self, session: ChatSession) -> None:
        session.keep()
        self._stores[-1].flush()

    def close(self) -> None:
        for store in self._stores:
            store.close(10)


@pytest.fixture
def prompts(tmp_path: Path) -> Iterator[Prompts]:
    made = Prompts(tmp_path / "prompts")
    yield made
    made.close()


def load(path: Path, codec: KvCodec = "q8_0", **more: Any) -> LoadedModel:
    return LoadedModel.load(path, EngineConfig(device="cpu", threads=2, kv_cache=codec, **{"context": 1024, **more}))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", max_context=1024)


@pytest.mark.parametrize("codec", CODECS)
def test_after_a_restart_a_chat_goes_on_where_it_was(tiny: Path, prompts: Prompts, codec: KvCodec) -> None:
    model = load(tiny, codec)
    first = prompts.session(model)
    given = [token for token in ids(ask(first, prompt())) if token is not None]
    prompts.end(first)
    more = [*prompt(), *given, *prompt(20, seed=2)]
    events = ask(prompts.session(load(tiny, codec)), more)
    stats = events[-1].stats
    assert stats.restored_tokens == stats.reused_tokens == LONG + len(given) - 1
    assert stats.ttft_s is not None
    assert stats.ttft_s >= stats.prefill_s
    assert ids(events) == ids(ask(ChatSession(model), more, chat=""))


def test_what_two_chats_share_is_kept_once_and_read_by_both(tiny: Path, prompts: Prompts) -> None:
    model = load(tiny)
    session, shared = prompts.session(model), prompt(BLOCK_TOKENS)
    for number in range(2):
        ask(session, [*shared, *prompt(80, seed=number + 5)], chat=f"chat {number}")
    prompts.end(session)
    assert len(list(prompts.root.glob("*.kv"))) == 3
    again = prompts.session(model)
    assert ask(again, [*shared, *prompt(80, seed=9)], chat="a third one")[-1].stats.restored_tokens == BLOCK_TOKENS
    prompts.end(again)
    keep_only(prompts.root, ["chat 1"])
    again = prompts.session(model)
    last = ask(again, [*shared, *prompt(80, seed=6), 5], chat="chat 1")[-1]
    assert last.stats.restored_tokens == BLOCK_TOKENS + 80, "what it shared with a deleted chat is still there"


def test_a_prompt_that_leaves_a_kept_one_within_a_block_reads_up_to_there(tiny: Path, prompts: Prompts) -> None:
    model = load(tiny)
    session = prompts.session(model)
    ask(session, prompt())
    prompts.end(session)
    other = [*prompt()[: BLOCK_TOKENS - 30], *prompt(40, seed=3)]
    events = ask(prompts.session(model), other)
    assert events[-1].stats.restored_tokens == BLOCK_TOKENS - 30
    assert ids(events) == ids(ask(ChatSession(model), other, chat=""))


def test_going_back_to_an_earlier_branch_costs_no_prefill(tiny: Path, prompts: Prompts) -> None:
    session = prompts.session(load(tiny), quota_bytes=0)  # in RAM alone
    branches = [[*prompt(), *prompt(100, seed=seed)] for seed in (2, 3)]
    for branch in branches:
        ask(session, branch)
    last = ask(session, [*branches[0], 5])[-1]
    assert last.stats.reused_tokens == LONG + 100
    assert not prompts.root.exists()


def test_an_answer_elsewhere_in_between_costs_no_prefill(tiny: Path, prompts: Prompts) -> None:
    session = prompts.session(load(tiny))
    ask(session, prompt())
    ask(session, prompt(90, seed=4), chat="")  # a title
    assert ask(session, [*prompt(), 7])[-1].stats.reused_tokens == LONG


def test_what_belongs_to_no_chat_is_not_kept(tiny: Path, prompts: Prompts) -> None:
    session = prompts.session(load(tiny))
    ask(session, prompt(), chat="")
    session.drop_chats_except([])
    ask(session, prompt(FEWEST_TOKENS - 20), chat="short")
    prompts.end(session)
    assert not prompts.root.exists()


def test_a_chat_that_is_deleted_while_it_is_open_is_not_kept(tiny: Path, prompts: Prompts) -> None:
    session = prompts.session(load(tiny))
    ask(session, prompt())
    session.drop_chats_except(["another"])
    prompts.end(session)
    assert not prompts.root.exists()


def test_another_model_mode_or_codec_reads_none_of_it(tiny: Path, tmp_path: Path, prompts: Prompts) -> None:
    model = load(tiny)
    session = prompts.session(model)
    ask(session, prompt())
    prompts.end(session)
    other = make_tiny_gguf(tmp_path / "other.gguf", max_context=1024, seed=5)
    for one in (load(other), load(tiny, "f16"), load(tiny, mode="dense" if model.mode != "dense" else "exact")):
        assert ask(prompts.session(one), prompt())[-1].stats.restored_tokens == 0
    assert ask(prompts.session(model), prompt())[-1].stats.restored_tokens > 0


def test_tokens_that_two_modes_computed_are_not_kept(tiny: Path, prompts: Prompts) -> None:
    session = prompts.session(load(tiny, mode="dense"))
    ask(session, prompt(80))
    session.set_mode("exact")
    ask(session, prompt())
    prompts.end(session)
    names = {path.name for path in prompts.root.glob("*.kv")}
    assert len(names) == 1, "what was kept of the first mode before the second went on"


def test_reading_that_takes_longer_than_computing_is_given_up(
    tiny: Path, prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, long = load(tiny), prompt(3 * BLOCK_TOKENS)
    session = prompts.session(model)
    ask(session, long)
    prompts.end(session)
    monkeypatch.setattr("engine.prompt_cache.stored_prompts.TRIED", 0)
    monkeypatch.setattr("engine.prompt_cache.stored_prompts.READERS", 1)
    slow = prompts.session(model)
    assert slow.prompts is not None
    headers = slow.prompts._store.after(slow.prompts._root(model.mode, 1))
    assert 0 < headers[0].token_s < 1, "measured while it was computed"
    monkeypatch.setattr("engine.prompt_cache.stored_prompts.time.perf_counter", iter(range(0, 10**6, 60)).__next__)
    assert slow.prompts.restore(model.new_cache(), 0, [*long, 5], model.mode) == BLOCK_TOKENS


def test_reading_can_be_cancelled(tiny: Path, prompts: Prompts) -> None:
    model = load(tiny)
    session = prompts.session(model)
    ask(session, prompt())
    prompts.end(session)
    events = ask(prompts.session(model), prompt(), job=Job(lambda: True))
    assert events[-1].finish_reason == "cancelled"


def test_a_gpu_that_fails_costs_the_kept_prompt_and_no_answer(
    tiny: Path, prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> Any:
        raise CudaError("a copy", 719, "it failed")

    model = load(tiny)
    session = prompts.session(model)
    wanted = ids(ask(session, prompt()))
    prompts.end(session)
    monkeypatch.setattr(KVCache, "put_positions", fail)
    assert ids(ask(prompts.session(model), prompt())) == wanted
    monkeypatch.setattr(KVCache, "positions", fail)
    session = prompts.session(model)
    ask(session, prompt(seed=8))
    ask(session, prompt(seed=9))
    session.keep()


def test_saving_ends_where_ram_is_full_and_nothing_is_written(tiny: Path, prompts: Prompts) -> None:
    session = prompts.session(load(tiny), quota_bytes=0, ram_bytes=60_000)  # two blocks
    ask(session, prompt(3 * BLOCK_TOKENS))
    for _ in range(10):
        if session.save_step() is None:
            break
    assert session.save_step() is None
    other = ask(session, prompt(90, seed=4), chat="")
    assert other[-1].finish_reason is not None
    assert ask(session, prompt(3 * BLOCK_TOKENS))[-1].stats.restored_tokens == 2 * BLOCK_TOKENS


def test_every_step_of_saving_is_short_and_the_last_ends_it(tiny: Path, prompts: Prompts) -> None:
    session = prompts.session(load(tiny))
    ask(session, prompt(3 * BLOCK_TOKENS))
    steps = 0
    while session.save_step() is not None:
        steps += 1
    assert steps == 4, "three blocks and the answer's"
    assert session.save_step() is None


@pytest.fixture(scope="module", params=["dense", "experts"])
def recurrent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = make_recurrent_model(tmp_path_factory.mktemp("model"), experts=request.param == "experts")
    return load(folder, context=512)


def test_state_and_positions_come_back_together(recurrent: LoadedModel, prompts: Prompts) -> None:
    session = prompts.session(recurrent)
    given = [token for token in ids(ask(session, prompt())) if token is not None]
    prompts.end(session)
    more = [*prompt(), *given, *prompt(20, seed=2)]
    events = ask(prompts.session(recurrent), more)
    assert events[-1].stats.restored_tokens == LONG + len(given) - 1
    assert ids(events) == ids(ask(ChatSession(recurrent), more, chat=""))
    # The answer is written in another way, such as without its thought.
    other = [*prompt(), *prompt(30, seed=3)]
    events = ask(prompts.session(recurrent), other)
    assert events[-1].stats.restored_tokens == LONG - TURN_END_TOKENS
    assert ids(events) == ids(ask(ChatSession(recurrent), other, chat=""))


def test_without_its_state_nothing_is_read(recurrent: LoadedModel, prompts: Prompts) -> None:
    session = prompts.session(recurrent)
    ask(session, prompt())
    prompts.end(session)
    for path in prompts.root.glob("*.kv"):
        if b'"kind":"state"' in path.read_bytes()[:4000]:
            path.unlink()
    assert ask(prompts.session(recurrent), prompt())[-1].stats.restored_tokens == 0


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpuMachine:
    return FakeGpuMachine(tmp_path, monkeypatch)


@pytest.mark.parametrize("codec", CODECS)
def test_what_one_side_kept_the_other_reads(
    tiny: Path, prompts: Prompts, machine: FakeGpuMachine, codec: KvCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To and from the GPU: numbers keep their codes and change their order alone."""
    monkeypatch.setattr("engine.prompt_cache.stored_prompts.READERS", 1)  # so that the blocks are staged
    on_cpu = load(tiny, codec)
    on_gpu = machine.load(tiny, kv_cache=codec, context=1024, mode=on_cpu.mode)
    assert (on_cpu.mode, on_gpu.device) == (on_gpu.mode, "cuda")
    wanted = [ids(ask(ChatSession(model), [*prompt(), 7], chat="")) for model in (on_cpu, on_gpu)]
    for writer, readers in ((on_cpu, (on_gpu,)), (on_gpu, (on_cpu, on_gpu))):
        kept = prompts if writer is on_cpu else Prompts(prompts.root.with_name("of_gpu"))
        session = kept.session(writer)
        ask(session, prompt())
        kept.end(session)
        for reader in readers:
            events = ask(kept.session(reader), [*prompt(), 7])
            assert events[-1].stats.restored_tokens == LONG
            assert ids(events) == wanted[reader is on_gpu]
    kept.close()
    on_gpu.close()


@pytest.mark.parametrize("codec", KV_CODECS)
@pytest.mark.parametrize("shared", [False, True])
def test_rows_and_blocks_hold_the_same_numbers(codec: KvCodec, shared: bool) -> None:
    layout, rng = KvLayout(40, codec, shared), np.random.default_rng(1)
    blocks = allocate(1, 3, 75, layout)[0]
    k, v = (rng.standard_normal((75, 3, 40)).astype(np.float32) for _ in range(2))
    write(blocks, layout, 0, k, v)
    rows = to_rows(blocks, layout, 75)
    assert len(rows) == 75 * 3 * layout.row_bytes
    back = from_rows(rows, layout, 3, 75)
    for one, other in zip(read(back, layout, 75), read(blocks, layout, 75), strict=True):
        assert np.array_equal(one, other)


def test_chats_with_the_same_instructions_share_their_state(recurrent: LoadedModel, prompts: Prompts) -> None:
    """After an answer elsewhere, and after a restart; also once the first chat has gone on for some turns."""
    told = {"role": "system", "content": "Say what you know of the sea and its ships. " * 8}

    def answer(session: ChatSession, words: str, chat: str, *before: str) -> list[TokenEvent]:
        turns = [{"role": ("user", "assistant")[n % 2], "content": one} for n, one in enumerate((*before, words))]
        return list(session.chat([told, *turns], GREEDY, chat=chat)[1])

    session = prompts.session(recurrent)
    n_told = len(recurrent.tokenizer.encode_chat([told, {"role": "user", "content": ""}]))
    question = "Which of all the ships that lie in the harbour will leave tonight, and which of them tomorrow? " * 2
    cold = answer(session, question, "a")
    assert cold[-1].stats.reused_tokens == 0
    assert n_told > FEWEST_INSTRUCTIONS_TOKENS
    least = (n_told - 48) // 32 * 32
    assert answer(session, f"How many? {question}", "b")[-1].stats.reused_tokens >= least
    turns = [question]
    for _ in range(4):
        turns += ["These.", "And now?"]
        answer(session, turns[-1], "a", *turns[:-1])
    ask(session, prompt(), "elsewhere")
    prompts.end(session)
    again = prompts.session(recurrent)
    warm = answer(again, f"The tide? {question}", "c")
    assert warm[-1].stats.restored_tokens >= least
    assert ids(warm) == ids(answer(ChatSession(recurrent), f"The tide? {question}", ""))


def test_remembering_the_state_after_instructions_changes_no_token(recurrent: LoadedModel) -> None:
    tokens = prompt(400)
    plain = list(ChatSession(recurrent).generate(tokens, GREEDY))
    for n_instructions in (300, 399, 400, 256, 255):
        assert ids(list(ChatSession(recurrent).generate(tokens, GREEDY, n_instructions=n_instructions))) == ids(plain)
