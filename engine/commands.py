"""What the commands of the command line do: call the library and print.

With --json exactly one JSON object goes to stdout and nothing else; progress and figures for people go to stderr.
Each command takes its parsed arguments and returns the exit code; failures of the world are raised.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import EngineConfig, plain_values
from engine.console import ProgressBar, interrupt_as_wish
from engine.errors import Cancelled, EngineError, InvalidRequestError

if TYPE_CHECKING:
    from engine.bundle_manifest import Manifest
    from engine.generate import GenerationStats, TokenEvent
    from engine.model.model_files import OpenedModel
    from engine.session import LoadedModel


def _load(arguments: argparse.Namespace, cancelled: Callable[[], bool] = lambda: False) -> LoadedModel:
    from engine.session import LoadedModel

    config = EngineConfig(
        device=arguments.device,
        threads=arguments.threads,
        context=arguments.context,
        mode=arguments.mode,
        vram_budget_gib=arguments.vram_budget,
        hardware_file=arguments.hardware,
        kv_cache=arguments.kv_cache,
        template=arguments.template,
        activation=arguments.activation,
    )
    with ProgressBar("Loading") as progress, ProgressBar("Preparing the processor kernels") as preparing:
        return LoadedModel.load(arguments.model, config, progress, cancelled, preparing)


def _sampling_values(arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "repeat_penalty", "seed")
    return {name: value for name in names if (value := getattr(arguments, name)) is not None}


def _print_json(values: dict[str, Any]) -> None:
    # ASCII only: every reader takes it, whatever encoding this terminal or pipe has, and odd paths come back unharmed.
    print(json.dumps(values, allow_nan=False), flush=True)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}%"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"


# ------------------------------------------------------------------ generate and chat


def generate(arguments: argparse.Namespace) -> int:
    """Ctrl-C, from the loading of the model on, ends the answer as cancelled; with --json what there is is printed."""
    prompt: list[int] = []
    tokens: list[int] = []
    text: list[str] = []
    with interrupt_as_wish() as cancelled:
        from engine.generate import GenerationStats  # in here, because it takes a while

        reason, stats = "cancelled", GenerationStats()
        with suppress(Cancelled):
            model = _load(arguments, cancelled)
            prompt = _prompt_tokens(model, arguments)
            for event in _answer(model, prompt, arguments, cancelled):
                stats = event.stats
                text.append(event.text)
                if event.token_id is not None:
                    tokens.append(event.token_id)
                if not arguments.json:
                    print(event.text, end="", flush=True)
                if event.finish_reason:
                    reason = event.finish_reason
        if arguments.json:
            _print_json(
                {
                    "prompt_tokens": prompt,
                    "tokens": tokens,
                    "text": "".join(text),
                    "finish_reason": reason,
                    "stats": _stats_values(stats),
                }
            )
        else:
            print()
            if reason != "cancelled":
                print(_stats_line(stats), file=sys.stderr)
    return 130 if reason == "cancelled" else 0


def _prompt_tokens(model: LoadedModel, arguments: argparse.Namespace) -> list[int]:
    tokenizer = model.tokenizer
    if arguments.raw:
        return tokenizer.encode(arguments.prompt, special=True, add_bos=tokenizer.adds_bos)
    return tokenizer.encode_chat([{"role": "user", "content": arguments.prompt}])


def _answer(
    model: LoadedModel, prompt: list[int], arguments: argparse.Namespace, cancelled: Callable[[], bool]
) -> Iterator[TokenEvent]:
    from engine.session import ChatSession

    sampling = model.sampling.changed(_sampling_values(arguments))
    if not arguments.raw:
        sampling = model.chat_sampling(sampling)
    with ProgressBar("Reading") as progress:
        yield from ChatSession(model).generate(prompt, sampling, cancelled, progress)


def _stats_values(stats: GenerationStats) -> dict[str, Any]:
    from engine.cpu_and_ram import process_ram_bytes

    return {
        "ttft_s": stats.ttft_s,
        "prefill_tok_s": stats.prefill_tok_s,
        "decode_tok_s": stats.decode_tok_s,
        "gpu_neuron_load": stats.gpu_neuron_load,
        "active_share": stats.active_share,
        "fired_share": stats.fired_share,
        "vram_bytes": 0,
        "ram_bytes": process_ram_bytes(),
        "context_full": stats.context_full,
    }


def _stats_line(stats: GenerationStats) -> str:
    first = "–" if stats.ttft_s is None else f"{stats.ttft_s:.2f} s"
    note = ", the context is full" if stats.context_full else ""
    return (
        f"[{_number(stats.decode_tok_s)} tok/s, {stats.tokens} tokens in {stats.total_s:.1f} s, first after {first}, "
        f"{_percent(stats.active_share)} of neurons{note}]"
    )


def chat(arguments: argparse.Namespace) -> int:
    """Reads lines until end of file or /bye. Ctrl-C stops the answer, or ends the chat where none is running."""
    from engine.session import ChatSession

    model = _load(arguments)
    sampling = model.sampling.changed(_sampling_values(arguments))
    session = ChatSession(model)
    messages = [{"role": "system", "content": arguments.system}] if arguments.system else []
    print(f"{model.name}. {model.description}".strip())
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
            with interrupt_as_wish() as cancelled:
                dropped, events = session.chat(messages, sampling, cancelled)
                if dropped:
                    print(f"[{dropped} earlier messages are no longer in the context]")
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
            messages.pop()  # nothing was answered: the words can be sent again


# ------------------------------------------------------------------ measuring


def logits(arguments: argparse.Namespace) -> int:
    import numpy as np

    from engine.evaluate import last_logits

    try:
        tokens = [int(part) for part in arguments.tokens.split(",") if part.strip()]
    except ValueError as error:
        raise InvalidRequestError(f"--tokens {arguments.tokens!r} is no list of ids.", "Write it as 1,2,3.") from error
    model = _load(arguments)
    logits = last_logits(model, tokens, every=arguments.all)
    out = Path(arguments.out)
    try:
        with out.open("wb") as file:
            np.savez(file, logits=logits)
    except OSError as error:
        raise InvalidRequestError(f"{out} cannot be written: {error.strerror}.", "Choose another --out.") from error
    if arguments.json:
        _print_json({"file": str(out), "vocab_size": model.opened.config.vocab_size})
    else:
        print(f"{out}: logits {list(logits.shape)}")
    return 0


def evaluate(arguments: argparse.Namespace) -> int:
    from engine import evaluate as scores

    text = scores.read_text(Path(arguments.text)) if arguments.text else ""
    questions = scores.read_choices(Path(arguments.choices)) if arguments.choices else []
    if arguments.max_tokens is not None and arguments.max_tokens < 1:
        raise InvalidRequestError(f"--max-tokens is {arguments.max_tokens}; at least 1 is needed.")
    model = _load(arguments)
    result: scores.Choices | scores.Perplexity
    if arguments.choices:
        with ProgressBar("Scoring") as progress:
            result = scores.multiple_choice(model, questions, against=arguments.against, on_progress=progress)
        words = f"{result.questions} questions, {_percent(result.accuracy)} right"
        if result.agreement is not None:
            words += f", {_percent(result.agreement)} chosen as in {arguments.against} mode"
    else:
        tokens = model.tokenizer.encode(text)[: arguments.max_tokens]
        context = min(arguments.context or scores.DEFAULT_CONTEXT, model.context)
        with ProgressBar("Scoring") as progress:
            result = scores.perplexity(model, tokens, context, against=arguments.against, on_progress=progress)
        words = (
            f"perplexity {result.perplexity:.4f} over {result.tokens} tokens; {_percent(result.active_share)} of "
            f"neurons active, {_percent(result.fired_share)} fired"
        )
        if result.top1_agreement is not None:
            words += (
                f"; agrees with {arguments.against} mode at {_percent(result.top1_agreement)} of the positions, "
                f"KL divergence {result.kl_divergence:.2e} nats"
            )
    if arguments.json:
        # A perplexity beyond every number has no place in JSON; nll still tells how bad it is.
        _print_json({name: None if value == math.inf else value for name, value in asdict(result).items()})
    else:
        print(words)
    return 0


def bench(arguments: argparse.Namespace) -> int:
    from engine import bench as speed

    if arguments.batch != 1:
        raise InvalidRequestError(
            f"This version decodes one sequence at a time, not {arguments.batch}.", "Use --batch 1."
        )
    model = _load(arguments)
    with ProgressBar("Measuring") as progress:
        result = speed.run(model, arguments.prompt_tokens, arguments.gen_tokens, arguments.repeat, on_progress=progress)
    if arguments.json:
        _print_json(asdict(result))
        return 0
    moved = sum(result.bytes_per_token.values())
    print(f"decode   {_number(result.decode_tok_s)} tok/s ({result.mode}, {result.threads} threads)")
    print(f"backend  {result.backend}: {result.backend_reason}")
    print(f"weights  {result.weights}")
    print(f"prefill  {_number(result.prefill_tok_s)} tok/s")
    print(f"bytes    {moved / 1e6:.1f} MB per token, {_percent(result.active_share)} of neurons active")
    print(f"floor    {1e3 * result.floor_s_per_token:.2f} ms per token; share of floor {result.share_of_floor:.2f}")
    print("time     " + ", ".join(f"{name} {1e3 * value:.2f} ms" for name, value in result.timings.items()))
    return 0


# ------------------------------------------------------------------ looking


def inspect(arguments: argparse.Namespace) -> int:
    from engine.bundle import BundleSource
    from engine.model.weights import open_model
    from engine.session import read_tokenizer, resolve_model

    opened = open_model(resolve_model(arguments.model), arguments.activation)
    tokenizer = read_tokenizer(opened, arguments.template)
    template = tokenizer.template
    assert template is not None, "read_tokenizer chooses one"
    config = plain_values(opened.config)
    manifest = opened.source.manifest if isinstance(opened.source, BundleSource) else None
    values = {
        "format": opened.format,
        "family": opened.config.family,
        "activation": opened.config.activation,
        "activation_from": opened.activation_origin,
        "config": config,
        "tensors": len(opened.source.tensors),
        "codecs": dict(opened.codecs),
        "parameters": opened.parameters,
        "down": "row-wise" if opened.down_is_row_wise else "neuron by neuron",
        "has_predictors": opened.has_predictors,
        "has_stats": opened.has_stats,
        "has_placement": opened.has_placement,
        "chat_template": tokenizer.chat_template is not None,
        "template": template.name,
        "template_reason": tokenizer.template_reason,
        "name": opened.name,
    }
    if arguments.json:
        _print_json(values)
        return 0
    sizes = ", ".join(f"{n_bytes / 1e6:.1f} MB {codec}" for codec, n_bytes in opened.codecs.items())
    print(f"{opened.name}: {opened.config.family}, {opened.parameters / 1e6:.1f} million parameters, {opened.format}")
    print(f"  {sizes} in {values['tensors']} tensors")
    neurons = f"{config['d_ff']} neurons a layer"
    if opened.config.n_experts:
        neurons = f"{config['n_experts']} experts of {config['d_ff']} neurons a layer"
        neurons += f" and one of {config['shared_d_ff']} for all" if opened.config.shared_d_ff else ""
    print(f"  {config['n_layers']} layers, width {config['d_model']}, {neurons}, "
          f"{config['n_heads']} heads ({config['n_kv_heads']} key-value)")  # fmt: skip
    if opened.config.n_experts:
        print(f"  a token goes through {config['n_experts_used']} of the {config['n_experts']} experts of each layer: "
              f"{_parameters_used(opened) / 1e6:.1f} million parameters are used for it")  # fmt: skip
    print(f"  vocabulary {config['vocab_size']}, context {config['max_context']}")
    print(f"  chat template {template.name}: {tokenizer.template_reason}")
    zeros = "neurons that do not fire can be skipped" if opened.config.has_zeros else "no zeros: nothing can be skipped"
    threshold = f" above {opened.config.activation_threshold:g}" if opened.config.activation_threshold else ""
    print(f"  activation {opened.config.activation}{threshold}, {_ORIGINS[opened.activation_origin]}: {zeros}")
    if opened.config.has_zeros and opened.down_is_row_wise:
        what = "gate and up can skip inactive neurons" if opened.config.gated else "nothing skips inactive neurons"
        print(f"  run straight from the file, {what}, and down is computed row-wise; unpacked in RAM, all of it skips")
    if manifest:
        _print_bundle(manifest)
    _print_artefacts(opened)
    for note in (*opened.files.notes, *tokenizer.notes):
        print(f"  note: {note}")
    return 0


_ORIGINS = {
    "config": "as its configuration says",
    "metadata": "as its metadata says",
    "family": "its family's convention, as its files do not say",
    "override": "as asked for",
}


def _parameters_used(opened: OpenedModel) -> int:
    """Parameters that one token goes through: all, less the experts that it is not sent to."""
    config = opened.config
    of_experts = sum(tensor.n_elements for tensor in opened.plan if tensor.of_expert)
    return (
        opened.parameters - of_experts + of_experts // config.n_neurons * round(config.n_neurons * config.reached_share)
    )


def _print_artefacts(opened: OpenedModel) -> None:
    """Where the predictors and counts lie that count, and whether they can be used as far as their heads tell."""
    from engine import artefacts
    from engine.model_artefacts import predictor_place, predictor_sizes

    place = predictor_place(opened)
    if place is not None:
        try:
            words = f"{predictor_sizes(opened).stored / 1e6:.1f} MB"
        except EngineError as error:
            words = f"which cannot be used: {error.message}"
        where = {
            "artefact": artefacts.artefact_folder(opened),
            "file": "its own file",
            "folder": opened.files.predictors,
        }
        print(f"  predictors in {where[place]}, {words}")
    if artefacts.find(opened, "statistics") is not None:
        words = ""
        try:
            artefacts.check_stats(opened)
        except EngineError as error:
            words = f", which cannot be used: {error.message}"
        print(f"  activation counts in {artefacts.artefact_folder(opened)}{words}")
    elif opened.files.stats is not None:
        print(f"  activation counts come with it, in {opened.files.stats.name}")


def _print_bundle(manifest: Manifest) -> None:
    source = manifest.source
    worst = max(manifest.tensors, key=lambda name: manifest.tensors[name].relative_error)
    error = manifest.tensors[worst].relative_error
    print(f"  made from {source.name} ({source.format}) by {manifest.created_by}, asked for as {manifest.codec}")
    print(
        f"  largest error against the source: {100 * error:.2f}% ({worst})" if error else "  the source's very values"
    )
    for warning in manifest.warnings:
        print(f"  note: {warning}")


# ------------------------------------------------------------------ making


def convert(arguments: argparse.Namespace) -> int:
    from engine import convert as making
    from engine.session import resolve_model

    try:
        with ProgressBar("Converting") as progress, interrupt_as_wish() as wished:
            made = making.convert(
                resolve_model(arguments.source),
                Path(arguments.bundle),
                arguments.codec,
                progress,
                cancelled=wished,
                activation=arguments.activation,
            )
    except Cancelled:
        print("Stopped. The same command goes on where it was; what is finished is kept.", file=sys.stderr)
        return 130
    for warning in made.warnings:
        print(f"Note: {warning}", file=sys.stderr)
    worst = max(made.relative_errors, key=lambda name: made.relative_errors[name])
    if arguments.json:
        _print_json(
            {
                "bundle": str(made.bundle),
                "bytes": made.n_bytes,
                "seconds": made.seconds,
                "warnings": list(made.warnings),
                "largest_error": {"tensor": worst, "relative_error": made.relative_errors[worst]},
                "kept_parts": made.kept_parts,
            }
        )
        return 0
    print(f"{made.bundle}: {made.n_bytes / 1e6:.1f} MB in {made.seconds:.1f} s")
    print(f"  largest error of a tensor against its source: {100 * made.relative_errors[worst]:.2f}% ({worst})")
    return 0


def probe(arguments: argparse.Namespace) -> int:
    from engine import hardware

    profile = hardware.probe()
    if arguments.measure:
        profile = hardware.measure(profile, threads=arguments.threads)
    if arguments.json:
        _print_json(profile.to_json())
        return 0
    print(hardware.describe(profile))
    print(
        f"  {profile.cpu.name}: {profile.cpu.cores} cores, {profile.cpu.threads} threads, {' '.join(profile.cpu.isa)}"
    )
    print(f"  RAM: {profile.ram.free_bytes / 1e9:.1f} of {profile.ram.total_bytes / 1e9:.1f} GB free")
    if profile.cpu.bytes_per_s:
        print(f"  memory read at {profile.cpu.bytes_per_s / 1e9:.1f} GB/s")
    for gpu in profile.gpus:
        print(f"  GPU {gpu.index}: {gpu.name}: " + ("usable" if gpu.usable else "; ".join(gpu.reasons)))
    return 0


def host(arguments: argparse.Namespace) -> int:
    from engine.host import serve_stdio

    return serve_stdio()
