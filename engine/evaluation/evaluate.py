"""Quality: perplexity, agreement with another mode, multiple choice by likelihood. Generates and times nothing.

Two arithmetics: "decode" computes token by token, as answers do, with activations rounded to bytes by the compiled
kernels; "prefill" computes many positions at once, as prompts do, which is faster and often nearer to F32.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from engine.errors import InvalidRequestError, ModelNotFoundError
from engine.job import Progress
from engine.model.kv_cache import KVCache
from engine.session.generate import decode_one_token, prefill
from engine.session.sampling import BrokenLogitsError

if TYPE_CHECKING:
    from engine.model.transformer import Transformer
    from engine.session.loaded_model import LoadedModel

Floats = npt.NDArray[np.float32]
Arithmetic = Literal["decode", "prefill"]
DEFAULT_CONTEXT = 512
PIECE_TOKENS = 128  # positions computed at once, with their logits in memory


@dataclass(frozen=True)
class Perplexity:
    """nll in nats per token, mean over all positions; bytes of a decoded token's FFNs.

    active_share: computed neurons; fired_share: active neurons; both of all neurons, means over tokens and layers.
    precision: share of computed neurons that are active. recall: active neurons here per active neuron in the mode
    compared against. Both only with predictors.
    """

    tokens: int
    perplexity: float
    nll: float
    active_share: float | None
    fired_share: float | None
    top1_agreement: float | None = None
    kl_divergence: float | None = None  # of the tested mode from the reference, nats per token
    recall: float | None = None
    precision: float | None = None
    ffn_bytes_per_token: int | None = None  # predictors included
    ffn_bytes_share: float | None = None  # of the bytes for all neurons
    arithmetic: Arithmetic = "prefill"
    begins_with_bos: bool = True  # whether every window does


@dataclass(frozen=True)
class Choices:
    """agreement: share of questions with the same choice as the mode compared against."""

    questions: int
    accuracy: float
    agreement: float | None = None
    arithmetic: Arithmetic = "prefill"  # of the choices; questions are always prefilled
    begins_with_bos: bool = True  # whether every question does


def read_text(path: Path) -> str:
    """Read a text file as UTF-8. Raises: ModelNotFoundError or InvalidRequestError with the reason."""
    try:
        return path.read_text(encoding="utf-8-sig")  # Windows' editor writes a byte order mark
    except OSError as error:
        raise ModelNotFoundError(f"{path} cannot be read: {error.strerror}.", "Check the path.") from error
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{path} is not UTF-8 text (byte {error.start}).", "Save it as UTF-8.") from error


def log_softmax(logits: Floats) -> Floats:
    """Return row-wise log-probabilities, [T, V] -> [T, V]."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), dtype=np.float32)


def windows(tokens: Sequence[int], bos: int | None, context: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield (input, target) pairs of up to context - 1 tokens.

    Each begins with BOS, so that every token is scored once; without BOS it begins with the token before its first
    target, so that every token except the very first is scored.
    """
    step = context - 1
    tokens = list(tokens) if bos is None else [bos, *tokens]
    for at in range(0, len(tokens) - 1, step):
        targets = tokens[at + 1 : at + 1 + step]
        first = tokens[at] if bos is None else bos
        yield [first, *targets[:-1]], targets


def perplexity(
    model: LoadedModel,
    tokens: Sequence[int],
    context: int = DEFAULT_CONTEXT,
    mode: str | None = None,
    against: str | None = None,
    on_progress: Progress = lambda done, total: None,
    arithmetic: Arithmetic = "prefill",
) -> Perplexity:
    """Return the perplexity of `tokens`, and with `against` the agreement with that mode at every position."""
    if not 2 <= context <= model.context:
        raise InvalidRequestError(f"A context of {context} tokens was asked for; 2 to {model.context} are possible.")
    bos = model.text_bos_id
    needed = 2 if bos is None else 1
    if len(tokens) < needed:
        raise InvalidRequestError(
            f"The text has {len(tokens)} tokens; at least {needed} must be there.", "Give a longer text."
        )
    from engine.executor.sparse import SparseExecutor

    model.reserve(context)
    tested = model.transformer(mode)
    if isinstance(tested.executor, SparseExecutor):
        tested.executor.predicts_prompts = True  # decode does
    reference = model.transformer(against) if against else None
    cache, other_cache = model.new_cache(context), model.new_cache(context)
    tested.executor.counters.reset()
    if reference:
        reference.executor.counters.reset()
    total_nll, scored, same, divergence = 0.0, 0, 0, 0.0
    for inputs, targets in windows(tokens, bos, context):
        other_logits = _all_logits(reference, other_cache, inputs, arithmetic) if reference else None
        at = 0
        for logits in _all_logits(tested, cache, inputs, arithmetic):
            wanted = np.asarray(targets[at : at + len(logits)])
            log_p = log_softmax(logits)
            total_nll -= float(log_p[np.arange(len(wanted)), wanted].sum(dtype=np.float64))
            if other_logits is not None:
                other_p = log_softmax(next(other_logits))
                same += int((log_p.argmax(axis=-1) == other_p.argmax(axis=-1)).sum())
                divergence += float((np.exp(other_p) * (other_p - log_p)).sum(dtype=np.float64))
            at += len(logits)
            on_progress(scored + at, len(tokens))
        scored += at
    counters = tested.executor.counters
    nll = total_nll / scored
    if not math.isfinite(nll):
        raise BrokenLogitsError("The model's logits for this text are not finite numbers.")
    ffn_bytes, ffn_share = _ffn_bytes(model, tested)
    recall = precision = None
    if tested.executor.name == "sparse" and counters.active_share:
        precision = (counters.fired_share or 0.0) / counters.active_share
        if reference and (fired := reference.executor.counters.fired_share):
            recall = min(1.0, (counters.fired_share or 0.0) / fired)
    return Perplexity(
        tokens=scored,
        perplexity=math.exp(nll) if nll < 700 else math.inf,
        nll=nll,
        active_share=counters.active_share,
        fired_share=counters.fired_share,
        top1_agreement=same / scored if reference else None,
        kl_divergence=divergence / scored if reference else None,
        recall=recall,
        precision=precision,
        ffn_bytes_per_token=ffn_bytes,
        ffn_bytes_share=ffn_share,
        arithmetic=arithmetic,
        begins_with_bos=bos is not None,
    )


def _ffn_bytes(model: LoadedModel, tested: Transformer) -> tuple[int, float]:
    """Return the FFN bytes that decoding a token would read, and their share of all."""
    from engine.executor.ffn_bytes import exact_bytes, ffn_bytes, sparse_bytes

    shares, reached = tested.executor.counters.layer_shares, model.opened.config.routed_share
    whole = ffn_bytes(model.weights, reached, reached, reached, reached)
    match tested.executor.name:
        case "sparse":
            read: float = sum(sparse_bytes(model.weights, model.modes.predictor, shares, reached))
        case "exact":
            read = exact_bytes(model.weights, shares, reached)
        case _:
            read = whole
    return round(read), read / whole


def _all_logits(model: Transformer, cache: KVCache, inputs: Sequence[int], arithmetic: Arithmetic) -> Iterator[Floats]:
    """Yield logits of every position in chunks [<= PIECE_TOKENS, V]. Empties the cache first."""
    cache.truncate(0)
    if arithmetic == "decode":
        return (decode_one_token(model, token, cache)[None].copy() for token in inputs)
    return (model.logits(hidden) for hidden in _hidden(model, cache, inputs))


def _hidden(model: Transformer, cache: KVCache, inputs: Sequence[int]) -> Iterator[Floats]:
    """Yield hidden states in chunks [<= PIECE_TOKENS, D]: the neurons of a whole text would not fit in memory."""
    ids = np.asarray(inputs, dtype=np.int64)
    for at in range(0, len(ids), PIECE_TOKENS):
        yield model.forward(ids[at : at + PIECE_TOKENS], cache, max(0, len(ids) - at - PIECE_TOKENS))


def last_logits(
    model: LoadedModel,
    tokens: Sequence[int],
    mode: str | None = None,
    every: bool = False,
    arithmetic: Arithmetic = "prefill",
) -> Floats:
    """Return logits after `tokens`: [V] of the last position, or [T, V] of all."""
    vocabulary = model.opened.config.vocab_size
    if not tokens:
        raise InvalidRequestError("There are no tokens.", "Give at least one, as --tokens 1,2,3.")
    if bad := [token for token in tokens if not 0 <= token < vocabulary]:
        raise InvalidRequestError(f"Token {bad[0]} is outside the vocabulary of {vocabulary}.")
    if len(tokens) > model.context:
        raise InvalidRequestError(f"{len(tokens)} tokens do not fit into the context of {model.context}.")
    model.reserve(len(tokens))
    transformer = model.transformer(mode)
    cache = model.new_cache(len(tokens))
    if arithmetic == "decode":
        rows = _all_logits(transformer, cache, tokens, arithmetic)
        return np.concatenate(list(rows)) if every else list(rows)[-1][0]
    hidden = np.concatenate(list(_hidden(transformer, cache, tokens)))
    return transformer.logits(hidden) if every else transformer.logits(hidden[-1:])[0]


def read_choices(path: Path) -> list[tuple[str, list[str], int]]:
    """Read (question, choices, index of the answer) per line of JSON; an answer is an index or a choice."""
    questions = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            question, choices, answer = entry["question"], entry["choices"], entry["answer"]
            index = answer if type(answer) is int else choices.index(answer)
            fits = isinstance(question, str) and isinstance(choices, list) and 0 <= index < len(choices)
            fits = fits and all(isinstance(choice, str) for choice in choices)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidRequestError(
                f"Line {number} of {path} is not a question with choices and an answer among them.",
                'Write one JSON object a line: {"question": "...", "choices": ["...", "..."], "answer": 0}.',
            ) from error
        if not fits:
            raise InvalidRequestError(
                f"Line {number} of {path}: answer {answer!r} is not one of its choices.",
                "Give the answer's index, counted from 0, or its text.",
            )
        questions.append((question, choices, index))
    if not questions:
        raise InvalidRequestError(f"{path} has no question.", "Write one JSON object a line.")
    return questions


def multiple_choice(
    model: LoadedModel,
    questions: Sequence[tuple[str, list[str], int]],
    mode: str | None = None,
    against: str | None = None,
    on_progress: Progress = lambda done, total: None,
    arithmetic: Arithmetic = "prefill",
) -> Choices:
    """Return the accuracy of taking the likeliest choice after the question (sum of log-probabilities)."""
    right = same = 0
    for number, (question, choices, answer) in enumerate(questions, 1):
        chosen = _likeliest(model, mode, question, choices, arithmetic)
        right += chosen == answer
        if against:
            same += chosen == _likeliest(model, against, question, choices, arithmetic)
        on_progress(number, len(questions))
    agreement = same / len(questions) if against else None
    return Choices(len(questions), right / len(questions), agreement, arithmetic, model.text_bos_id is not None)


def _likeliest(
    model: LoadedModel, mode: str | None, question: str, choices: Sequence[str], arithmetic: Arithmetic
) -> int:
    tokenizer = model.tokenizer
    bos = [] if model.text_bos_id is None else [model.text_bos_id]
    head = bos + tokenizer.encode(question)
    if not head:
        raise InvalidRequestError("A question is empty, and this model's texts begin with no BOS token.")
    scores = []
    for choice in choices:
        tail = tokenizer.encode(choice if choice[:1].isspace() or question[-1:].isspace() else " " + choice)
        ids = head + tail
        if len(ids) > model.context:
            raise InvalidRequestError(f"A question of {len(ids)} tokens exceeds the context of {model.context}.")
        model.reserve(len(ids))
        transformer, cache = model.transformer(mode), model.new_cache(len(ids))
        if arithmetic == "decode":  # like an answer: after a prefilled question
            first = prefill(transformer, head, cache).copy()
            rows = [first, *(decode_one_token(transformer, token, cache).copy() for token in tail[:-1])]
            log_p = log_softmax(np.stack(rows))
        else:
            hidden = np.concatenate(list(_hidden(transformer, cache, ids[:-1])))
            log_p = log_softmax(transformer.logits(hidden[len(head) - 1 :]))
        scores.append(float(log_p[np.arange(len(tail)), tail].sum()))
    return int(np.argmax(scores))
