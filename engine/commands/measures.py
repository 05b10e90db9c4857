"""The commands logits, eval and bench, which measure a loaded model with evaluate.py and bench.py."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from pathlib import Path

from engine.commands.console import ProgressBar
from engine.commands.output import SETTLING_S, load_model, number, percent, print_json
from engine.errors import InvalidRequestError

_ARITHMETIC = {
    "decode": "computed token by token, as answers are written",
    "prefill": "computed many tokens at once, as prompts are read",
}


def logits(arguments: argparse.Namespace) -> int:
    import numpy as np

    from engine.evaluation.evaluate import last_logits

    try:
        tokens = [int(part) for part in arguments.tokens.split(",") if part.strip()]
    except ValueError as error:
        raise InvalidRequestError(
            f"--tokens {arguments.tokens!r} is not a list of ids.", "Write it as 1,2,3."
        ) from error
    model = load_model(arguments)
    logits = last_logits(model, tokens, every=arguments.all, arithmetic=arguments.arithmetic)
    out = Path(arguments.out)
    try:
        with out.open("wb") as file:
            np.savez(file, logits=logits)
    except OSError as error:
        raise InvalidRequestError(f"{out} cannot be written: {error.strerror}.", "Choose another --out.") from error
    if arguments.json:
        print_json({"file": str(out), "vocab_size": model.opened.config.vocab_size, "arithmetic": arguments.arithmetic})
    else:
        print(f"{out}: logits {list(logits.shape)}, {_ARITHMETIC[arguments.arithmetic]}")
    return 0


def evaluate(arguments: argparse.Namespace) -> int:
    from engine.evaluation import evaluate as scores

    text = scores.read_text(Path(arguments.text)) if arguments.text else ""
    questions = scores.read_choices(Path(arguments.choices)) if arguments.choices else []
    if arguments.max_tokens is not None and arguments.max_tokens < 1:
        raise InvalidRequestError(f"--max-tokens is {arguments.max_tokens}; at least 1 is needed.")
    model = load_model(arguments)
    result: scores.Choices | scores.Perplexity
    if arguments.choices:
        with ProgressBar("Scoring") as progress:
            result = scores.multiple_choice(
                model, questions, None, arguments.against, on_progress=progress, arithmetic=arguments.arithmetic
            )
        words = f"{result.questions} questions, {percent(result.accuracy)} right"
        if result.agreement is not None:
            words += f", {percent(result.agreement)} chosen as in {arguments.against} mode"
    else:
        tokens = model.tokenizer.encode(text)[: arguments.max_tokens]
        context = min(arguments.context or scores.DEFAULT_CONTEXT, model.context)
        with ProgressBar("Scoring") as progress:
            result = scores.perplexity(
                model, tokens, context, None, arguments.against, on_progress=progress, arithmetic=arguments.arithmetic
            )
        words = (
            f"perplexity {result.perplexity:.4f} over {result.tokens} tokens; {percent(result.active_share)} of "
            f"neurons active, {percent(result.fired_share)} fired; {percent(result.ffn_bytes_share)} of the "
            "feed-forward blocks' bytes read a token"
        )
        if result.precision is not None:
            words += f"; the predictors' precision is {percent(result.precision)}"
            words += "" if result.recall is None else f", their recall {percent(result.recall)}"
        if result.top1_agreement is not None:
            words += (
                f"; agrees with {arguments.against} mode at {percent(result.top1_agreement)} of the positions, "
                f"KL divergence {result.kl_divergence:.2e} nats"
            )
    words += f"; {_ARITHMETIC[result.arithmetic]}"
    words += "" if result.begins_with_bos else "; no BOS token before the text, as the model's files say"
    if arguments.json:
        # A perplexity beyond every number has no place in JSON; nll still tells how bad it is.
        print_json({name: None if value == math.inf else value for name, value in asdict(result).items()})
    else:
        print(words)
    return 0


def bench(arguments: argparse.Namespace) -> int:
    from engine.evaluation.bench import run
    from engine.evaluation.bench_batch import run_batch, whole_slots

    lengths = (arguments.prompt_tokens, arguments.gen_tokens, arguments.repeat)
    if arguments.batch > 1 and arguments.context is None:  # per sequence: no more, so that all fit
        arguments.context = whole_slots(arguments.prompt_tokens + arguments.gen_tokens)
    model = load_model(arguments)
    model.wait_for_weights(SETTLING_S)  # otherwise prefill would be slower than a moment later
    with ProgressBar("Measuring") as progress, model.undisturbed():  # as during answers
        if arguments.batch == 1:
            result = run(model, *lengths, on_progress=progress)
        else:
            result = run_batch(model, arguments.batch, *lengths, on_progress=progress)
    if arguments.json:
        print_json(asdict(result))
        return 0
    moved = sum(result.bytes_per_token.values())
    print(
        f"decode   {number(result.decode_tok_s)} tok/s ({result.mode}, {result.threads} threads)"
        + (f", {result.batch} sequences together" if result.batch > 1 else "")
    )
    print(f"backend  {result.backend}: {result.backend_reason}")
    print(f"weights  {result.weights}")
    print(f"prefill  {number(result.prefill_tok_s)} tok/s")
    print(f"device   {result.device}: {result.device_reason}")
    print(f"bytes    {moved / 1e6:.1f} MB per token, {percent(result.active_share)} of neurons active")
    if result.device == "cuda":
        on_gpu = result.bytes_per_token["gpu"]
        print(f"GPU     {on_gpu / 1e6:.1f} MB of them, {percent(result.gpu_neuron_load)} of the "
              f"neurons computed; {result.vram_bytes / 1e9:.2f} GB of VRAM held")  # fmt: skip
        if result.expert_hits is not None:
            print(f"experts  {percent(result.expert_hits)} of those that a token uses are on the GPU")
    if result.predictor_kinds:
        kinds = ", ".join(f"{kind} in {layers} layers" for kind, layers in result.predictor_kinds.items())
        print(f"predict  {result.predictor_bytes_per_token / 1e6:.2f} MB per token: {kinds}")
    print(f"floor    {1e3 * result.floor_s_per_token:.2f} ms per token; share of floor {result.share_of_floor:.2f}")
    print("time     " + ", ".join(f"{name} {1e3 * value:.2f} ms" for name, value in result.timings.items()))
    return 0
