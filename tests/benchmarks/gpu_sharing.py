"""A model on a real GPU among other programs: is what is said of its memory so, and does it give way and come back?

    python tests/benchmarks/gpu_sharing.py 7b-q4_0.gguf --budget 2 --budget 4 --take-back-s 8 --record
    python tests/benchmarks/gpu_sharing.py starter-chat --part neighbour --part idle
    python tests/benchmarks/gpu_sharing.py tiny.gguf --device cpu

Its parts, each of which may fail by itself; `--part` picks some:
  budgets     VRAM that the placement foretells against what NVML says, after short and long prompts in every mode
  neighbour   another program takes nearly all that is free: the engine gives way, answers rightly, runs out of memory
              in mid-answer, and takes all of it back when the other has gone
  cancel      a load cancelled at random moments, and closing: until it has ended, until VRAM and RAM are back
  two         two engines on one GPU answer at once
  marks       the stages that the GPU measures within a token for the live panel, and what that costs
  idle        the CPU's time while nothing is asked

Memory that runs out in mid-answer is an allocation of more than any GPU has, put into a token: the driver refuses it
in earnest. Exit code 1 where something is not as it is said.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import random
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from sharing_models import (  # noqa: E402
    ANSWER,
    Bench,
    Figures,
    agreement,
    answer,
    long_prompt,
    modes_of,
    question,
    random_prompt,
    walk,
)
from support.gpu_neighbours import Holder, OtherEngine  # noqa: E402 - found by the line above

from engine.config import SamplingConfig  # noqa: E402
from engine.errors import Cancelled, DeviceFailedError, DeviceMemoryError  # noqa: E402
from engine.gpu import vram_policy  # noqa: E402
from engine.gpu.token import decode_program  # noqa: E402
from engine.gpu.token.decode_program import GpuDecodeProgram  # noqa: E402
from engine.gpu.token.token_runner import TokenRunner  # noqa: E402
from engine.machine.cpu_and_ram import process_ram_bytes, return_freed_ram  # noqa: E402
from engine.machine.graphics import used_bytes  # noqa: E402
from engine.machine.hardware import HardwareProfile, choose_gpu, probe  # noqa: E402
from engine.session.chat_session import ChatSession  # noqa: E402
from engine.session.generate import decode_one_token, prefill  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402

RESULTS = Path(__file__).parent / "results"
GIB, MIB = 1 << 30, 1 << 20
OVER = 1.02  # of a budget, and of what was foretold
OFF, OFF_BYTES = 0.10, 500e6  # foretold against measured VRAM: one of the two
CANCELLED_S, BACK_S = 1.0, 2.0
GPU_SLACK, RAM_SLACK = 16 * MIB, 96 * MIB  # what the driver and the allocator may keep
LEFT_FREE = 64 * MIB  # by the other program; the engine gives way below vram_policy.FLOOR_BYTES
IDLE_S, IDLE_SHARE = 3.0, 0.01  # of a core
MARKS_COST = 0.01  # of the time, with two tokens a second marked
MORE_THAN_ANY_GPU = 1 << 45
LATE_S = 0.5  # beside the time between two looks at the GPU
TAKE_BACK_LIMIT_S = 30.0  # beside what it waits for


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--part", choices=PARTS, action="append", help="may be repeated (default: all)")
    parser.add_argument("--budget", type=float, action="append", metavar="GIB", help="(default: 2, 6, 11, 24)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--mode", choices=("auto", "sparse", "exact", "dense"), default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--cancels", type=int, default=6, help="loads that are cancelled")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--take-back-s", type=float, default=vram_policy.TAKE_BACK_EVERY_S,
        help="before memory is taken back, in place of the engine's own (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    vram_policy.TAKE_BACK_EVERY_S = flags.take_back_s
    hardware = probe()
    gpu, words = choose_gpu(hardware)
    if flags.device == "cuda" and gpu is None:
        print(words)
        return 1
    before = 0 if gpu is None else used_bytes(gpu.index) or 0
    bench = Bench(flags, gpu if flags.device == "cuda" else None, before)
    found: dict[str, Figures] = {}
    for name in flags.part or [part for part in PARTS if flags.device == "cuda" or part in WITHOUT_GPU]:
        started = time.perf_counter()
        try:
            found[name] = PARTS[name](bench)
        except Exception as error:  # noqa: BLE001 - the other parts tell something all the same
            traceback.print_exc()
            found[name] = {"reached": False, "failed": f"{type(error).__name__}: {error}"}
        gc.collect()
        found[name]["took_s"] = time.perf_counter() - started
        print(f"{name}: {json.dumps(_rounded(found[name]), indent=1)}", flush=True)
        if flags.record:  # what has been measured is kept, should a later part never end
            print(f"Written to {record(hardware, found)}.", flush=True)
    missed = [name for name, one in found.items() if not one["reached"]]
    print(f"Not as it is said: {', '.join(missed)}." if missed else "All is as it is said.")
    return 1 if missed else 0


def record(hardware: HardwareProfile, found: dict[str, Figures]) -> Path:
    """The file with the figures."""
    date = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    command = " ".join(["python", "tests/benchmarks/gpu_sharing.py", *sys.argv[1:]])
    figures = {"date": date, "command": command, "hardware": hardware.to_json(), "parts": found}
    file = RESULTS / f"gpu-sharing-{date}.json"
    file.write_text(json.dumps(_rounded(figures), indent=1) + "\n", encoding="utf-8")
    return file


# --- the parts


def budgets(bench: Bench) -> Figures:
    """Every budget that matters, and none given: all that is free."""
    automatic = memory_of(bench, None)
    needed = automatic["foretold_bytes"] / GIB
    given = sorted(bench.flags.budget or [2.0, 6.0, 11.0, 24.0])
    sensible = [one for one in given if one < needed] + [one for one in given if one >= needed][:1]
    rows = [automatic, *(memory_of(bench, one) for one in sensible)]
    return {"rows": rows, "reached": all(row["reached"] for row in rows)}


def memory_of(bench: Bench, budget_gib: float | None) -> Figures:
    """What one placement foretells and what is measured then, in every mode."""
    found: Figures = {"budget_gib": budget_gib}
    try:
        model = bench.load(budget_gib)
    except DeviceMemoryError as error:  # a budget that holds nothing of it is refused in words
        return {**found, "foretold_bytes": 0, "refused": error.message, "reached": bool(error.hint)}
    looks: list[Figures] = []
    try:
        session = ChatSession(model)
        for mode in modes_of(model):
            session.set_mode(mode)
            for prompt in (random_prompt(model, 8), long_prompt(model)):
                answer(session, prompt, 8)
                foretold = 0 if model.gpu is None else model.gpu.placement.vram_bytes
                looks.append({"mode": mode, "prompt": len(prompt), "foretold": foretold, "measured": bench.held()})
        parts = {} if model.gpu is None else {**model.gpu.placement.vram_parts_bytes}
        asked = {} if model.gpu is None else model.gpu.part_bytes
        found |= {"load_s": model.load_s, "device": model.device, "notes": list(model.gpu_notes)}
    finally:
        model.close()
    over = max(one["measured"] / max(1, one["foretold"]) for one in looks)
    off = max(abs(one["measured"] - one["foretold"]) - max(OFF * one["foretold"], OFF_BYTES) for one in looks)
    within = budget_gib is None or max(one["measured"] for one in looks) <= OVER * budget_gib * GIB
    return {
        **found, "foretold_bytes": looks[0]["foretold"], "looks": looks, "foretold_parts": parts, "asked_for": asked,
        "most_of_foretold": over, "within_budget": within, "reached": over <= OVER and off <= 0 and within,
    }  # fmt: skip


def neighbour(bench: Bench) -> Figures:
    """Another program comes, takes more, and goes."""
    model = bench.load()
    uuid = "" if bench.gpu is None else bench.gpu.uuid or ""
    other = Holder(uuid)
    steps: list[Figures] = []
    try:
        session, prompt = ChatSession(model), question(model)
        text = prompt + answer(session, prompt, ANSWER)
        known, first = walk(model, text), state(bench, model)
        part = model.on_gpu
        assert part is not None, "the model is on the GPU"
        part.balance()  # the look before: the next is due after as long as it ever takes
        held, free = other.take(LEFT_FREE)
        noted, began = len(model.gpu_notes), time.perf_counter()
        placing_s = until(model, lambda: len(model.gpu_notes) > noted or model.gpu is None, 30)
        taken_s = time.perf_counter() - began
        steps.append({
            "step": "gave way while nobody asked", "other_holds": held, "left_free": free, "seconds": taken_s,
            "of_that_placing_s": placing_s, **state(bench, model), **agreement(walk(model, text), known),
        })  # fmt: skip
        steps[-1]["reached"] = steps[-1]["right"] and taken_s - placing_s <= vram_policy.LOOK_EVERY_S + LATE_S
        if model.gpu is not None:
            steps.append(asked_at_once(bench, model, session, other, prompt))
            steps[-1] |= agreement(walk(model, text), known)
            steps[-1]["reached"] = steps[-1]["right"] and steps[-1]["answered"]
        if model.gpu is not None:
            steps.append(in_mid_answer(bench, model, session, prompt))
            steps[-1] |= agreement(walk(model, text), known)
            steps[-1]["reached"] = all(steps[-1][one] for one in ("right", "answered", "hint"))
        other.close()
        began = time.perf_counter()
        limit = bench.flags.take_back_s + TAKE_BACK_LIMIT_S
        placing_s = until(model, lambda: state(bench, model)["placed"] >= first["placed"], limit)
        steps.append({
            "step": "took it back", "seconds": time.perf_counter() - began, "of_that_placing_s": placing_s,
            "waits_s": bench.flags.take_back_s, **state(bench, model), **agreement(walk(model, text), known),
        })  # fmt: skip
        steps[-1]["reached"] = steps[-1]["same_bits"] and steps[-1]["placed"] == first["placed"]
        return {"first": first, "steps": steps, "reached": all(step["reached"] for step in steps)}
    finally:
        other.close()
        model.close()


def asked_at_once(
    bench: Bench, model: LoadedModel, session: ChatSession, other: Holder, prompt: list[int]
) -> Figures:  # fmt: skip
    """The other one takes all again, and an answer is asked for before anybody has looked."""
    held, free = other.take(LEFT_FREE)
    noted, began = len(model.gpu_notes), time.perf_counter()
    found = answer(session, prompt, ANSWER)
    return {
        "step": "gave way before an answer", "other_holds": held, "left_free": free,
        "seconds": time.perf_counter() - began, "answered": len(found) > 0 and len(model.gpu_notes) > noted,
        **state(bench, model),
    }  # fmt: skip


def in_mid_answer(bench: Bench, model: LoadedModel, session: ChatSession, prompt: list[int]) -> Figures:
    """Memory runs out at the fourth token: an error with a hint, and the next answer."""
    sampling = SamplingConfig().changed({"temperature": 0, "max_tokens": ANSWER})
    said, hint, n = "", "", 0
    session.clear()
    try:
        with running_out() as wanted:
            for event in session.generate(prompt, sampling):
                n += event.token_id is not None
                wanted[0] = n == 3
    except DeviceFailedError as error:
        said, hint = error.message, error.hint
    began = time.perf_counter()
    found = answer(session, prompt, ANSWER)
    return {
        "step": "ran out in mid-answer", "said": said, "hint": hint, "tokens_before": n,
        "next_answer_s": time.perf_counter() - began, "answered": len(found) > 0, **state(bench, model),
    }  # fmt: skip


@contextmanager
def running_out() -> Iterator[list[bool]]:
    """While the list's one value is true, a token asks its GPU for memory that it has not."""
    wanted = [False]
    run = TokenRunner.run

    def asks_for_more(self: TokenRunner, *of: Any) -> bool:
        if wanted[0]:
            wanted[0] = False
            self._gpu.allocate(MORE_THAN_ANY_GPU)
        return run(self, *of)

    with mock.patch.object(TokenRunner, "run", asks_for_more):
        yield wanted


def state(bench: Bench, model: LoadedModel) -> Figures:
    """Where the model is now."""
    placed = 0 if model.gpu is None else model.gpu.placement.vram_bytes
    return {
        "device": model.device, "placed": placed, "measured": bench.held(), "notes": list(model.gpu_notes[-1:]),
        "reason": model.device_reason,
    }  # fmt: skip


def until(model: LoadedModel, is_so: Callable[[], bool], limit_s: float) -> float:
    """Looks after the model as the host does while nobody asks, until it is so, or for so long: the seconds of the last
    look."""
    part, end = model.on_gpu, time.perf_counter() + limit_s
    assert part is not None, "the model is on the GPU"
    took = 0.0
    while not is_so() and time.perf_counter() < end:
        began = time.perf_counter()
        wait = part.balance()
        took = time.perf_counter() - began
        if not is_so():
            time.sleep(1.0 if wait is None else wait)
    return took


def cancel(bench: Bench) -> Figures:
    """Loads that are cancelled at any moment, and loads that are closed."""
    chance = random.Random(bench.flags.seed)
    loads, closes, cancels = [], [], []
    for _ in range(2):
        began = time.perf_counter()
        model = bench.load()
        loads.append(time.perf_counter() - began)
        answer(ChatSession(model), random_prompt(model, 8), 4)
        held = (bench.held(), process_ram_bytes())
        began = time.perf_counter()
        model.close()
        closed_s = time.perf_counter() - began
        del model
        closes.append({"held": held, "ended_s": closed_s})
        if len(closes) == 1:  # what the first one leaves is what there is from now on
            gc.collect()
            return_freed_ram()
            time.sleep(0.5)
            before = (bench.held(), process_ram_bytes())
            continue
        closes[-1] |= back(bench, before, began)
    for _ in range(bench.flags.cancels):
        moment = chance.uniform(0, 0.9 * min(loads))
        began = time.perf_counter()
        ended, is_cancelled = cancelled_at(bench, began + moment)
        cancels.append({
            "at_s": moment, "cancelled": is_cancelled, "ended_s": max(0.0, ended - began - moment),
            **back(bench, before, began + moment if is_cancelled else ended),
        })  # fmt: skip
    slowest = max(one["ended_s"] for one in (*closes[1:], *cancels))
    back_s = max(one["back_s"] for one in (*closes[1:], *cancels))
    return {
        "load_s": loads, "closes": closes, "cancels": cancels, "most_ended_s": slowest, "most_back_s": back_s,
        "reached": slowest <= CANCELLED_S and back_s <= BACK_S and any(one["cancelled"] for one in cancels),
    }  # fmt: skip


def cancelled_at(bench: Bench, moment: float) -> tuple[float, bool]:
    """A load that is cancelled then: when it ended, and whether it was not over before."""
    try:
        model = bench.load(cancelled=lambda: time.perf_counter() >= moment)
    except Cancelled:
        return time.perf_counter(), True
    model.close()
    return time.perf_counter(), False


def back(bench: Bench, before: tuple[int, int], since: float) -> Figures:
    """Seconds until the GPU and the RAM hold what they did before; more than that after 4 BACK_S: what they hold."""
    while True:
        gc.collect()
        return_freed_ram()  # as the engine does after a model
        gpu, ram = bench.held() - before[0], process_ram_bytes() - before[1]
        taken = time.perf_counter() - since
        if (gpu <= GPU_SLACK and ram <= RAM_SLACK) or taken > 4 * BACK_S:
            return {"back_s": taken, "gpu_left": gpu, "ram_left": ram}
        time.sleep(0.02)


def two(bench: Bench) -> Figures:
    """Two processes answer at the same time; each says what it says alone."""
    model = bench.load()
    other = OtherEngine(bench.flags.model, bench.flags.device, bench.flags.context)
    try:
        session, prompt = ChatSession(model), question(model)
        alone = answer(session, prompt, ANSWER)
        theirs_alone = other.ask(prompt=prompt, tokens=ANSWER)
        began = time.perf_counter()
        other.begin(prompt=prompt, tokens=ANSWER)
        session.clear()
        ours = answer(session, prompt, ANSWER)
        theirs = other.answer()
        took = time.perf_counter() - began
        return {
            "device": model.device, "seconds": took, "tokens": len(ours), "theirs": theirs,
            "same_as_each_other": ours == theirs["tokens"],
            "reached": ours == alone and theirs["tokens"] == theirs_alone["tokens"] and len(ours) > 0
            and theirs["device"] == model.device == bench.flags.device,
        }  # fmt: skip
    finally:
        other.close()
        model.close()


def marks(bench: Bench) -> Figures:
    """The whole model on the GPU, and in half as much."""
    whole = marked(bench, None)
    rows = [whole]
    if whole["placed"] > 2 * GIB:
        rows.append(marked(bench, whole["placed"] / 2 / GIB))
    return {"rows": rows, "reached": all(row["reached"] for row in rows)}


def marked(bench: Bench, budget_gib: float | None) -> Figures:
    """Tokens with marks and without in turn."""
    model = bench.load(budget_gib)
    try:
        program = model.transformer().decoder
        assert isinstance(program, GpuDecodeProgram), "a GPU computes"
        placed = 0 if model.gpu is None else model.gpu.placement.vram_bytes
        tokens = random_prompt(model, min(96, model.context - 1))
        cache = model.new_cache()
        graph = model.transformer()
        prefill(graph, tokens[:4], cache)
        program.measure_stages(on_gpu=True)
        with_marks, without, stages = list[float](), list[float](), list[dict[str, float]]()
        for number, token in enumerate(tokens[4:]):
            with mock.patch.object(decode_program, "MARK_EVERY_S", 1e9 if number % 2 else 0.0):
                began = time.perf_counter()
                decode_one_token(graph, token, cache)
                (without if number % 2 else with_marks).append(time.perf_counter() - began)
            if number % 2 == 0:
                stages.append(program.gpu_seconds())
        program.measure_stages(False)
        first, *with_marks = with_marks  # captures the work with its marks
        plain, dear = statistics.median(without[1:]), statistics.median(with_marks)
        mean = {name: statistics.mean(one[name] for one in stages[1:]) for name in stages[-1]}
        share = statistics.median(sum(one.values()) / s for one, s in zip(stages[1:], with_marks, strict=True))
        cost = max(0.0, dear - plain) / decode_program.MARK_EVERY_S
        return {
            "budget_gib": budget_gib, "placed": placed, "mode": model.mode, "first_marked_s": first,
            "marked_s": dear, "plain_s": plain, "cost_share": cost, "stages_s": mean, "sum_of_token": share,
            "reached": {"attention", "ffn"} <= set(mean) and 0.2 <= share <= 1.05 and cost <= MARKS_COST,
        }  # fmt: skip
    finally:
        model.close()


def idle(bench: Bench) -> Figures:
    """What all threads of the process take of the CPU behind an answer."""
    model = bench.load()
    try:
        answer(ChatSession(model), random_prompt(model, 8), ANSWER)
        time.sleep(0.2)
        before = time.process_time()
        time.sleep(IDLE_S)
        share = (time.process_time() - before) / IDLE_S
        return {"device": model.device, "share_of_a_core": share, "reached": share <= IDLE_SHARE}
    finally:
        model.close()


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


PARTS: dict[str, Callable[[Bench], Figures]] = {
    "budgets": budgets, "neighbour": neighbour, "cancel": cancel, "two": two, "marks": marks, "idle": idle,
}  # fmt: skip
WITHOUT_GPU = ("cancel", "two", "idle")


if __name__ == "__main__":
    sys.exit(main())
