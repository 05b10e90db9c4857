"""JSON in steps: what Python's decoder returns and refuses, without its hold on the other threads."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable
from random import Random
from threading import Thread
from typing import Any

import pytest

from app.chat.store import json_steps
from app.chat.store.json_steps import TooManyContainersError, decoded, require_utf8

LETTERS = ["a", '"', "\\", "/", "\n", "\x01", "é", "漢", "👩", "\ud83d", "\udc69", "x" * 9000]


def utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def some_value(dice: Random, depth: int = 0) -> Any:
    def word() -> str:
        return "".join(dice.choice(LETTERS) for _ in range(dice.randrange(8)))

    match dice.randrange(8 if depth < 5 else 5):
        case 0:
            return dice.choice([None, True, False])
        case 1:
            return dice.randrange(-(10**12), 10**12)
        case 2:
            return dice.random() * 10 ** dice.randrange(-200, 200)
        case 3 | 4:
            return word()
        case 5 | 6:
            return [some_value(dice, depth + 1) for _ in range(dice.randrange(5))]
    return {word(): some_value(dice, depth + 1) for _ in range(dice.randrange(5))}


def or_refused(decode: Callable[[str], Any], text: str) -> str:
    try:
        return repr(decode(text))
    except ValueError:
        return "refused"


def refuse(word: str) -> float:
    raise ValueError(word)


@pytest.mark.parametrize("seed", range(4))
def test_it_returns_and_refuses_what_pythons_decoder_does(seed: int) -> None:
    dice = Random(seed)
    for _ in range(200):
        value = some_value(dice)
        text = json.dumps(value, ensure_ascii=dice.random() < 0.5, indent=dice.choice([None, 1]))
        assert decoded(utf8(text), 100_000) == json.loads(text)
        damaged = list(text)
        for _ in range(dice.randrange(1, 3)):
            damaged[dice.randrange(len(damaged))] = dice.choice('"\\{}[]:,0-.eE \0truenNaIify')
        text = "".join(damaged)
        expected = or_refused(lambda text: json.loads(text, parse_constant=refuse), text)
        assert or_refused(lambda text: decoded(utf8(text), 100_000), text) == expected


@pytest.mark.parametrize(
    "text", ["", " ", "[", "[1", "[1,", "{", '{"a"', '{"a":', '{"a":1', '"', '"\\', "1 2", "NaN", "[1,]"]
)
def test_what_is_cut_off_is_refused(text: str) -> None:
    assert or_refused(lambda text: decoded(utf8(text), 10), text) == "refused"


def test_depth_and_number_of_containers_are_bounded() -> None:
    assert decoded(b"[[], {}]", 3) == [[], {}]
    with pytest.raises(TooManyContainersError):
        decoded(b"[[], {}]", 2)
    with pytest.raises(ValueError, match="deep"):
        decoded(b"[" * 300 + b"]" * 300, 1000)


def test_long_strings_keep_characters_whole_where_their_parts_meet() -> None:
    for ahead in ("", "x", "xx", "\\n"):
        text = f'"{ahead}' + "\\ud83d\\ude00\\u00e9" * 5000 + '"'
        assert decoded(utf8(text), 0) == json.loads(text)
        word = ahead.replace("\\n", "n") + "é漢👩" * 3000
        assert decoded(f'"{word}"'.encode("utf-8-sig"), 0) == word
    with pytest.raises(UnicodeDecodeError):
        require_utf8(("é漢👩" * 300_000).encode()[:-1])


def test_one_wide_character_widens_only_its_own_string() -> None:
    values = ["x" * 100_000] * 40 + ["👩"]
    data = json.dumps(values, ensure_ascii=False).encode()
    tracemalloc.start()
    try:
        require_utf8(data)
        assert decoded(data, 1) == values
        assert tracemalloc.get_traced_memory()[1] < 2 * len(data)
    finally:
        tracemalloc.stop()


def longest_pause(work: Callable[[], object]) -> float:
    """For how long this thread got no turn while another one worked, s."""
    thread = Thread(target=work)
    longest, before = 0.0, time.perf_counter()
    thread.start()
    while thread.is_alive():
        time.sleep(0.0005)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    return max(longest, time.perf_counter() - before)


def test_other_threads_have_their_turns_while_a_large_file_is_read() -> None:
    text = json.dumps([{"text": 'word\n"word" ' * 100_000} for _ in range(25)])
    assert any(
        3 * longest_pause(lambda: decoded(utf8(text), 100)) < longest_pause(lambda: json.loads(text)) for _ in range(4)
    )


def test_the_number_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_steps, "MOST_VALUES", 10)
    assert decoded(b"[" + b"1," * 9 + b"1]", 5) == [1] * 10
    with pytest.raises(TooManyContainersError):
        decoded(b"[" + b"1," * 10 + b"1]", 5)
