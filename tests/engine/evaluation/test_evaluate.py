"""Figures of quality: windows that score every token once, likelihoods, and questions read with care."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from engine.assets import asset_root
from engine.errors import InvalidRequestError, ModelNotFoundError
from engine.evaluation import evaluate
from engine.model.transformer import Transformer
from engine.session.generate import decode_one_token
from engine.session.loaded_model import LoadedModel
from engine.session.sampling import BrokenLogitsError
from engine.text.tokenizer import Tokenizer


@pytest.mark.parametrize("context", [2, 5, 8, 100])
@pytest.mark.parametrize("count", [1, 7, 8, 20])
def test_windows_score_every_token_exactly_once(count: int, context: int) -> None:
    tokens = list(range(10, 10 + count))
    pairs = list(evaluate.windows(tokens, 0, context))
    assert [token for _, targets in pairs for token in targets] == tokens
    assert all(inputs[0] == 0 and len(inputs) == len(targets) <= context - 1 for inputs, targets in pairs)


def test_without_a_bos_only_the_first_token_of_the_text_is_not_scored() -> None:
    assert list(evaluate.windows([1, 2, 3, 4, 5], None, 4)) == [([1, 2, 3], [2, 3, 4]), ([4], [5])]
    assert list(evaluate.windows([1], None, 4)) == []


def test_a_bos_stands_before_a_text_only_where_the_files_say_so(
    starter: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = starter.tokenizer.encode("The old man looked at the sea. " * 4)
    assert (evaluate.perplexity(starter, tokens, 16).begins_with_bos, starter.text_bos_id) == (True, 0)
    monkeypatch.setattr(starter.tokenizer, "adds_bos", False)
    seen: list[int] = []
    forward = Transformer.forward
    monkeypatch.setattr(
        Transformer, "forward", lambda model, ids, *rest: (seen.extend(ids.tolist()), forward(model, ids, *rest))[1]
    )
    result = evaluate.perplexity(starter, tokens, 16)
    assert (result.tokens, result.begins_with_bos) == (len(tokens) - 1, False)
    evaluate.multiple_choice(starter, [("Once upon a", ["time", "day"], 0)])
    assert seen
    assert 0 not in seen


def test_decode_scores_what_decoding_gives(starter: LoadedModel) -> None:
    """The kernels round activations to bytes when they decode; prefill does not."""
    tokens = [0, *starter.tokenizer.encode("The old man looked at the sea and said that it was time to go home.")]
    transformer, cache = starter.transformer(), starter.new_cache(len(tokens))
    rows = np.stack([decode_one_token(transformer, token, cache).copy() for token in tokens])
    log_p = evaluate.log_softmax(rows[:-1])
    nll = -float(log_p[np.arange(len(log_p)), tokens[1:]].mean())
    decoded = evaluate.perplexity(starter, tokens[1:], 64, arithmetic="decode")
    assert decoded.nll == pytest.approx(nll, rel=1e-6)
    assert decoded.arithmetic == "decode"
    np.testing.assert_array_equal(evaluate.last_logits(starter, tokens, every=True, arithmetic="decode"), rows)
    np.testing.assert_array_equal(evaluate.last_logits(starter, tokens, arithmetic="decode"), rows[-1])
    prefilled = evaluate.perplexity(starter, tokens[1:], 64)
    assert prefilled.nll == pytest.approx(nll, rel=0.02)
    assert prefilled.fired_share == pytest.approx(decoded.fired_share, rel=0.02)


def test_choices_are_decoded_behind_the_question(starter: LoadedModel) -> None:
    questions = [("Once upon a", ["qxzzv", "time"], 1), ("The capital of", ["Peru is Lima.", "zzxqy vvq"], 0)]
    assert evaluate.multiple_choice(starter, questions, arithmetic="decode").accuracy == 1.0


def test_log_softmax_is_normal_and_survives_large_logits() -> None:
    log_p = evaluate.log_softmax(np.array([[1e4, 0, -1e4], [0, 0, 0]], dtype=np.float32))
    assert np.allclose(np.exp(log_p).sum(axis=-1), 1)
    assert np.allclose(log_p[1], -np.log(3))


def test_a_mode_agrees_with_itself_and_exact_with_dense(starter: LoadedModel) -> None:
    tokens = starter.tokenizer.encode("The old man looked at the sea and said that it was time to go home. " * 6)
    result = evaluate.perplexity(starter, tokens, context=32, mode="exact", against="dense")
    assert result.tokens == len(tokens)
    assert result.top1_agreement == 1.0
    assert abs(result.kl_divergence or 0) < 1e-6
    assert result.active_share == result.fired_share
    assert 1 < result.perplexity < 500
    dense = evaluate.perplexity(starter, tokens, context=32, mode="dense")
    assert dense.perplexity == pytest.approx(result.perplexity, rel=1e-4)
    assert dense.active_share == 1.0
    assert dense.fired_share == pytest.approx(result.fired_share, rel=1e-3)


def test_contexts_and_texts_that_cannot_be_scored_are_refused(starter: LoadedModel) -> None:
    with pytest.raises(InvalidRequestError, match="2 to 1024"):
        evaluate.perplexity(starter, [1, 2, 3], context=5000)
    with pytest.raises(InvalidRequestError, match="at least 1"):
        evaluate.perplexity(starter, [])


def test_the_model_picks_the_likelier_choice(starter: LoadedModel) -> None:
    questions = [
        (
            "<|user|>What is the capital of Peru?<|end|><|assistant|>",
            ["Lima is the capital of Peru.", "A blue cow."],
            0,
        ),
        ("Once upon a", ["qxzzv", "time"], 1),
    ]
    result = evaluate.multiple_choice(starter, questions, against="dense")
    assert (result.questions, result.accuracy, result.agreement) == (2, 1.0, 1.0)


def test_questions_are_read_with_the_answer_as_index_or_text(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    entries = [
        {"question": "a", "choices": ["x", "y"], "answer": 1},
        {"question": "b", "choices": ["x", "y"], "answer": "x"},
    ]
    file.write_text("\n".join(json.dumps(entry) for entry in entries) + "\n\n", encoding="utf-8")
    assert evaluate.read_choices(file) == [("a", ["x", "y"], 1), ("b", ["x", "y"], 0)]


@pytest.mark.parametrize(
    "line",
    ["what", "[]", "[" * 100_000, '{"question": "a", "choices": "xy", "answer": 0}',
     '{"question": "a", "choices": ["x", "y"], "answer": true}', '{"question": "a", "choices": ["x"], "answer": -1}',
     '{"question": "a", "choices": ["x"], "answer": 1}', '{"question": "a", "choices": ["x"]}',
     '{"question": "a", "choices": ["x"], "answer": "z"}', '{"question": 1, "choices": ["x"], "answer": 0}'],
)  # fmt: skip
def test_a_broken_question_is_named_by_its_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text('{"question": "a", "choices": ["x"], "answer": 0}\n' + line, encoding="utf-8")
    with pytest.raises(InvalidRequestError, match="Line 2"):
        evaluate.read_choices(file)


def test_texts_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="cannot be read"):
        evaluate.read_text(tmp_path / "missing.txt")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(InvalidRequestError, match="not UTF-8"):
        evaluate.read_text(tmp_path / "latin.txt")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InvalidRequestError, match="no question"):
        evaluate.read_choices(tmp_path / "empty.jsonl")


def test_one_token_can_be_scored_behind_a_bos(starter: LoadedModel) -> None:
    token = starter.tokenizer.encode("Once")[:1]
    assert evaluate.perplexity(starter, token).tokens == 1


def test_a_window_is_computed_in_pieces_with_the_same_result(
    reference_starter: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    starter = reference_starter  # kernels round tokens to bytes, which magnifies differences in the last digit
    tokens = starter.tokenizer.encode("The old man looked at the sea and said that it was time to go home. " * 3)
    whole = evaluate.perplexity(starter, tokens, context=50)
    logits = evaluate.last_logits(starter, tokens, every=True)
    monkeypatch.setattr(evaluate, "PIECE_TOKENS", 16)
    pieces = evaluate.perplexity(starter, tokens, context=50)
    assert pieces.nll == pytest.approx(whole.nll, rel=1e-5)
    assert pieces.active_share == pytest.approx(whole.active_share, rel=1e-3)
    np.testing.assert_allclose(evaluate.last_logits(starter, tokens, every=True), logits, atol=1e-3)


def test_questions_keep_their_letters_and_come_with_a_mark_before_them(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    lines = '{"question": "a\u2028b\x85c", "choices": ["x", "y"], "answer": 1}\r\n'
    file.write_bytes(lines.encode("utf-8-sig") + lines.encode())
    assert evaluate.read_choices(file) == [("a\u2028b\x85c", ["x", "y"], 1)] * 2


def test_broken_logits_are_no_perplexity(starter: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transformer, "logits", lambda model, hidden: np.full((len(hidden), 8192), np.nan, np.float32))
    with pytest.raises(BrokenLogitsError):
        evaluate.perplexity(starter, [1, 2, 3])


def test_a_choice_is_a_word_of_its_own(starter: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    encode = Tokenizer.encode

    def recording(tokenizer: Tokenizer, text: str) -> list[int]:
        encoded.append(text)
        return encode(tokenizer, text)

    monkeypatch.setattr(Tokenizer, "encode", recording)
    evaluate.multiple_choice(starter, [("Once upon a", ["time", " day"], 0), ("A line\n", ["more"], 0)])
    assert encoded == ["Once upon a", " time", " day", "A line\n", "more"]


def test_our_own_questions_are_sound_and_the_starter_model_knows_many(starter: LoadedModel) -> None:
    questions = evaluate.read_choices(asset_root() / "evaluation" / "choices.jsonl")
    assert len(questions) >= 60
    assert len({question for question, _, _ in questions}) == len(questions)
    assert all(len(set(choices)) == 4 for _, choices, _ in questions)
    counts = [sum(answer == place for _, _, answer in questions) for place in range(4)]
    assert min(counts) >= 8  # the place of an answer says nothing
    found = evaluate.multiple_choice(starter, questions[::4], "exact", against="dense")
    assert 0.5 < found.accuracy < 1
    assert found.agreement == 1.0


def test_bytes_are_those_of_what_was_computed(starter: LoadedModel) -> None:
    tokens = starter.tokenizer.encode("Once upon a time there was a small boat on a large lake.")
    exact, dense = (evaluate.perplexity(starter, tokens, mode=mode) for mode in ("exact", "dense"))
    assert dense.ffn_bytes_share == 1
    assert exact.ffn_bytes_share is not None
    assert exact.fired_share is not None
    down_is_row_wise = starter.weights.down_is_row_wise
    wanted = (1 + exact.fired_share + (1 if down_is_row_wise else exact.fired_share)) / 3
    assert exact.ffn_bytes_share == pytest.approx(wanted, rel=0.01)
    assert exact.precision is None
