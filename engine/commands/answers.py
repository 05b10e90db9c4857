"""The commands generate and chat."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.commands.console import ProgressBar, interrupt_as_cancel
from engine.commands.output import load_model, number, percent, print_json, print_note, sampling_values
from engine.errors import Cancelled, EngineError
from engine.job import CancelCheck, Job, never

if TYPE_CHECKING:
    from engine.session.chat_session import ChatSession
    from engine.session.constraint import Constraint
    from engine.session.generate import GenerationStats, TokenEvent
    from engine.session.loaded_model import LoadedModel


def generate(arguments: argparse.Namespace) -> int:
    """Print one answer. Ctrl-C cancels it, even during the load; --json then prints what there is."""
    prompt: list[int] = []
    tokens: list[int] = []
    text: list[str] = []
    model: LoadedModel | None = None
    with interrupt_as_cancel() as cancelled:
        from engine.session.generate import GenerationStats  # here, because the import is slow

        reason, stats = "cancelled", GenerationStats()
        with suppress(Cancelled):
            constraint = _constraint(arguments)
            model = load_model(arguments, cancelled)
            if not arguments.raw:
                _tell_kind(model)
            prompt = _prompt_tokens(model, arguments)
            for event in _answer(model, prompt, arguments, constraint, cancelled):
                stats = event.stats
                text.append(event.text)
                if event.token_id is not None:
                    tokens.append(event.token_id)
                if not arguments.json:
                    print(event.text, end="", flush=True)
                if event.finish_reason:
                    reason = event.finish_reason
        if arguments.json:
            print_json(
                {
                    "prompt_tokens": prompt,
                    "tokens": tokens,
                    "text": "".join(text),
                    "finish_reason": reason,
                    "stats": _stats_values(stats, model),
                }
            )
        else:
            print()
            if reason != "cancelled":
                print(_stats_line(stats), file=sys.stderr)
    return 130 if reason == "cancelled" else 0


def _tell_kind(model: LoadedModel) -> None:
    from engine.text.chat_templates import BASE_NOTE

    print_note(BASE_NOTE if model.tokenizer.kind == "base" else "")


def _prompt_tokens(model: LoadedModel, arguments: argparse.Namespace) -> list[int]:
    tokenizer = model.tokenizer
    if arguments.raw:
        return tokenizer.encode(arguments.prompt, special=True, add_bos=tokenizer.adds_bos)
    return tokenizer.encode_chat([{"role": "user", "content": arguments.prompt}], arguments.thinking)


def _answer(
    model: LoadedModel,
    prompt: list[int],
    arguments: argparse.Namespace,
    constraint: Constraint | None,
    cancelled: CancelCheck,
) -> Iterator[TokenEvent]:
    from engine.session.grammar import Grammar

    sampling = model.sampling.changed(sampling_values(arguments))
    if not arguments.raw:
        sampling = model.chat_sampling(sampling)
    session = _session(model, cancelled)
    grammar = None if constraint is None else Grammar(constraint, model.vocabulary, covers_thoughts=arguments.raw)
    make = None if grammar is None else partial(session.sampler_for, prompt, grammar=grammar)
    with ProgressBar("Reading") as progress:
        yield from session.generate(prompt, sampling, Job(cancelled, progress), make=make)


def _session(model: LoadedModel, cancelled: CancelCheck = never) -> ChatSession:
    """Return a session with the model of --draft, which is loaded now. Raises: the errors of Drafting.load."""
    from engine.session.drafting import drafted_session

    session = drafted_session(model)
    assert session.drafting is not None, "it was made for that"
    with ProgressBar("Loading the smaller model") as progress:
        session.drafting.load(Job(cancelled, progress))
    return session


def _constraint(arguments: argparse.Namespace) -> Constraint | None:
    from engine.evaluation.evaluate import read_text
    from engine.formats.json_text import read_object
    from engine.session.constraint import MOST_CHARS, Constraint

    found = None
    if arguments.regex is not None:
        found = Constraint("regex", arguments.regex)
    elif arguments.grammar is not None:
        found = Constraint("grammar", read_text(Path(arguments.grammar)))
    elif arguments.json_schema is not None:
        schema = read_object(Path(arguments.json_schema), max_bytes=4 * MOST_CHARS, max_values=MOST_CHARS)
        found = Constraint("json_schema", schema)
    if found is not None:
        found.check()  # before the load, which takes longer
    return found


def _stats_values(stats: GenerationStats, model: LoadedModel | None) -> dict[str, Any]:
    from engine.machine.cpu_and_ram import process_ram_bytes

    return {
        "ttft_s": stats.ttft_s,
        "prefill_tok_s": stats.prefill_tok_s,
        "decode_tok_s": stats.decode_tok_s,
        "guesses": {source: list(figures) for source, figures in stats.guesses.items()},
        "gpu_neuron_load": stats.gpu_neuron_load,
        "active_share": stats.active_share,
        "fired_share": stats.fired_share,
        "vram_bytes": 0 if model is None else model.vram_bytes,
        "vram_parts_bytes": None if model is None or model.gpu is None else model.gpu.part_bytes,
        "ram_bytes": process_ram_bytes(),
        "context_full": stats.context_full,
        "device": None if model is None else model.device,
        "device_reason": None if model is None else model.device_reason,
    }


def _stats_line(stats: GenerationStats) -> str:
    first = "–" if stats.ttft_s is None else f"{stats.ttft_s:.2f} s"
    note = f", {stats.accepted_tokens} of {stats.guessed_tokens} guesses right" if stats.guessed_tokens else ""
    note += ", the context is full" if stats.context_full else ""
    return (
        f"[{number(stats.decode_tok_s)} tok/s, {stats.tokens} tokens in {stats.total_s:.1f} s, first after {first}, "
        f"{percent(stats.active_share)} of neurons{note}]"
    )


def chat(arguments: argparse.Namespace) -> int:
    """Read lines until end of file or /bye. Ctrl-C cancels the answer, or ends the chat if there is none."""
    model = load_model(arguments)
    sampling = model.sampling.changed(sampling_values(arguments))
    session = _session(model)
    messages = [{"role": "system", "content": arguments.system}] if arguments.system else []
    print(f"{model.name}. {model.description}".strip())
    _tell_kind(model)
    print("An empty line sends nothing; /new starts over, /bye or Ctrl-D ends; Ctrl-C stops an answer.\n")
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            print()
            return 0
        if not line:
            continue
        if line == "/bye":
            return 0
        if line == "/new":
            messages = messages[:1] if arguments.system else []
            print("A new chat.\n")
            continue
        messages.append({"role": "user", "content": line})
        answer: list[str] = []
        try:
            with interrupt_as_cancel() as cancelled:
                fitted, events = session.chat(messages, sampling, Job(cancelled))
                if fitted.dropped:
                    print(f"[{fitted.dropped} earlier messages are no longer in the context]")
                for event in events:
                    answer.append(event.text)
                    print(event.text, end="", flush=True)
                    if event.finish_reason:
                        end = "[Stopped]" if event.finish_reason == "cancelled" else _stats_line(event.stats)
                        print(f"\n{end}\n", flush=True)
        except EngineError as error:
            print(f"{error.message}\n{error.hint}\n", file=sys.stderr)
        if any(answer):
            messages.append({"role": "assistant", "content": "".join(answer)})
        else:
            messages.pop()  # nothing was answered: the user can send it again
