"""Times of constrained answers, in ms for each token, with a vocabulary of 151,936 tokens; --record writes them.

`mask`: the computation of llguidance. `apply`: of the mask to the logits. `forced`: the search for tokens without a
choice. `hidden`: the wait that is left if the mask is computed in another thread while a model takes 5 ms.

`joint`: four answers at once, on the CPU with a random model of that vocabulary: the mean step in ms, and the part of
it in the samplers; of each step, the fastest of several rounds counts. `inline`: each mask is computed when its token
is chosen; `ahead`: begun when the token before is.

`decode`: one answer of a random model of Qwen3 0.6B's shape, Q4_0, on the CPU: ms of wall clock and of CPU for each
token of a long text in JSON, without a schema, with it, and the difference, as medians of interleaved rounds. No
tokens are guessed, and none is forced there.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)]
MODEL_S = 0.005
N_ANSWERS, N_ROUNDS, N_DECODE_ROUNDS = 4, 12, 9
WIDTH, N_LAYERS = 256, 4
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
}
JSON_GBNF = r"""
root ::= "{" (string ": " value (", " string ": " value)*)? "}"
value ::= root | "[" (value (", " value)*)? "]" | string | "-"? [0-9]+ ("." [0-9]+)? | "true" | "false" | "null"
string ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt])* "\""
"""
TEXT = '{"name": "bala cost", "tags": ["fin", "gu"], "note": "the banan in the casto, and so on"}'
LONG_TEXT = "the banan in the casto, and so on " * 12
N_FIRST = 12  # tokens at either end of a text that are not counted
CASES: dict[str, tuple[str, Any, str]] = {
    "JSON schema": ("json_schema", SCHEMA, TEXT),
    "regex": ("regex", r"[A-Z]{2}-\d{4}: [a-z ]{10,80}\.", "AB-1234: the banan in the casto and so on."),
    "GBNF": ("grammar", JSON_GBNF, TEXT),
}


def main() -> None:
    from vocabularies import VOCABULARIES

    from engine.session.constraint import Constraint
    from engine.session.grammar import Grammar, Vocabulary
    from engine.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_gguf(VOCABULARIES["like Qwen"]())
    vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size, tokenizer.stop_token_ids)
    figures: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} threads, Python {platform.python_version()}",
        "load_average": [round(value, 1) for value in os.getloadavg()],
    }
    for name, (kind, source, text) in CASES.items():
        grammar = Grammar(Constraint(kind, source), vocabulary)  # type: ignore[arg-type]
        figures[name] = answer(grammar, [*tokenizer.encode(text), min(tokenizer.stop_token_ids)], tokenizer.vocab_size)
    figures["joint"] = joint(tokenizer, vocabulary)
    figures["decode"] = decode(tokenizer, vocabulary)
    text = json.dumps(figures) + "\n"
    print(text)
    if "--record" in sys.argv:
        file = f"grammar-masks-{datetime.datetime.now(datetime.UTC):%Y-%m-%d}.json"
        (Path(__file__).parent / "results" / file).write_text(text, encoding="utf-8")


def answer(grammar: Any, tokens: list[int], n_tokens: int) -> dict[str, Any]:
    """Return the mean and the largest time of each part."""
    times: dict[str, list[float]] = {"forced": [], "mask": [], "apply": [], "hidden": []}
    logits, clock = np.random.default_rng(0).standard_normal(n_tokens, np.float32), time.perf_counter
    here, ahead = grammar.begin(), grammar.begin()
    for token in tokens:
        began = clock()
        here.compute_ff_tokens()
        found = clock()
        most = grammar.most(here)
        masked = clock()
        assert most[token] > 0, "the text follows the constraint"
        masked_at = clock()
        np.minimum(logits, most, out=most)
        applied = clock()
        computed = grammar.begin_most(ahead)
        time.sleep(MODEL_S)
        slept = clock()
        computed.result()
        seconds = (found - began, masked - found, applied - masked_at, clock() - slept)
        for name, value in zip(times, seconds, strict=True):
            times[name].append(1e3 * value)
        here.consume_token(token)
        ahead.consume_token(token)
    return {name: [round(float(np.mean(each)), 3), round(max(each), 3)] for name, each in times.items()}


def joint(tokenizer: Any, vocabulary: Any) -> dict[str, Any]:
    """Return a step and the samplers' part of it in ms, for each constraint and way."""
    from samples.tiny_model import make_tiny_model

    from engine.config import EngineConfig
    from engine.session import generate, load_stages
    from engine.session.constraint import Constraint
    from engine.session.grammar import Grammar
    from engine.session.loaded_model import LoadedModel

    embedding = np.random.default_rng(0).standard_normal((tokenizer.vocab_size, WIDTH), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        made = make_tiny_model(
            Path(folder) / "m", d_model=WIDTH, d_ff=4 * WIDTH, n_layers=N_LAYERS, max_context=256,
            config={"vocab_size": tokenizer.vocab_size, "eos_token_id": min(tokenizer.stop_token_ids)},
            tensors={"model.embed_tokens.weight": embedding},
        )  # fmt: skip
        (made / "generation_config.json").write_text("{}", encoding="utf-8")
        load_stages.read_tokenizer = lambda opened, template: tokenizer
        model = LoadedModel.load(made, EngineConfig(device="cpu", sequences=N_ANSWERS, mode="dense"))
    forced = generate.forced_tokens
    found: dict[str, Any] = {}
    for name, (kind, source, text) in CASES.items():
        grammar = Grammar(Constraint(kind, source), vocabulary)  # type: ignore[arg-type]
        steps: dict[str, list[list[tuple[float, float]]]] = {"inline": [], "ahead": []}
        for way, known in N_ROUNDS * list(steps.items()):
            generate.forced_tokens = forced if way == "ahead" else lambda sampler, history: []
            known.append(answers(model, grammar, text))
        generate.forced_tokens = forced
        found[name] = {
            way: [round(1e3 * float(part), 2) for part in np.min(known, axis=0).mean(axis=0)]
            for way, known in steps.items()
        }
    return found


def decode(tokenizer: Any, vocabulary: Any) -> dict[str, list[float]]:
    """Return ms of wall clock and of CPU for each token."""
    from catalogue_models import write_model

    from engine.config import EngineConfig, SamplingConfig
    from engine.library.estimate.catalogue import load_catalogue
    from engine.session import load_stages
    from engine.session.chat_session import ChatSession
    from engine.session.constraint import Constraint
    from engine.session.grammar import Grammar
    from engine.session.loaded_model import LoadedModel
    from engine.session.sampling import make_sampler

    load_stages.read_tokenizer = lambda opened, template: tokenizer
    prompt, tokens = [1, 2, 3], tokenizer.encode(json.dumps({"name": LONG_TEXT}))
    grammar = Grammar(Constraint("json_schema", SCHEMA), vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_model(path, load_catalogue().get("qwen3-0.6b").shape)
        session = ChatSession(LoadedModel.load(path, EngineConfig(device="cpu", context=512)))
        session._guesses = lambda: None  # type: ignore[method-assign, assignment, return-value]
        found: dict[str, list[list[float]]] = {"free": [], "schema": []}
        for way, rounds in N_DECODE_ROUNDS * list(found.items()):

            def make(sampling: Any, way: str = way) -> Any:
                greedy = make_sampler(sampling)

                def scripted(logits: Any, history: Sequence[int]) -> int:
                    greedy(logits, history)
                    return int(tokens[len(history) - len(prompt)])

                return scripted if way == "free" else grammar.constrain(scripted, tokenizer, prompt)

            steps: list[tuple[float, float]] = []
            for event in session.generate(prompt, SamplingConfig(temperature=0, max_tokens=len(tokens)), make=make):
                steps += [(time.perf_counter(), time.process_time())] if event.token_id is not None else []
            rounds.append((1e3 * np.diff(steps[N_FIRST:-N_FIRST], axis=0).mean(axis=0)).tolist())
    free, schema = np.array(found["free"][1:]), np.array(found["schema"][1:])  # the first may compile
    parts = {"free": free, "schema": schema, "difference": schema - free}
    return {name: [round(float(value), 3) for value in np.median(part, axis=0)] for name, part in parts.items()}


def answers(model: Any, grammar: Any, text: str) -> list[tuple[float, float]]:
    """Return the seconds of each joint step of answers with this text, and of their samplers in it."""
    from engine.config import SamplingConfig
    from engine.session.chat_session import ChatSession
    from engine.session.joint import JointSteps

    clock, prompt, tokenizer = time.perf_counter, [1, 2, 3], model.tokenizer

    def scripted(logits: Any, history: Sequence[int]) -> int:
        said = b"".join(tokenizer.token_bytes(token) for token in history[len(prompt) :]).decode()
        return int([*tokenizer.encode(text.removeprefix(said)), *model.stop_token_ids][0])

    sessions, joint_steps = [ChatSession(model) for _ in range(N_ANSWERS)], JointSteps(model)
    make = lambda sampling: grammar.constrain(scripted, tokenizer, prompt)  # noqa: E731
    running = [one.generate(prompt, SamplingConfig(), make=make) for one in sessions]
    found: list[tuple[float, float]] = []
    last = [next(events) for events in running]
    while last[0].token_id is not None:
        before, began = sum(event.stats.sampling_s for event in last), clock()
        joint_steps.compute([(one, event.token_id or 0) for one, event in zip(sessions, last, strict=True)])
        last = [next(events) for events in running]
        found.append((clock() - began, sum(event.stats.sampling_s for event in last) - before))
    return found[2:-1]  # the first may compile


if __name__ == "__main__":
    main()
