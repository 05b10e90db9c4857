"""The words and figures of the Models page."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from fake_library import GB, MACHINE, estimate
from hypothesis import example, given
from hypothesis import strategies as st
from support.shown_text import numbers_in

from app.models import model_labels
from app.models.model_rows import too_big
from app.ui.models.model_dialogs import gain_text
from app.ui.models.placement_popup import Placed
from app.units import NARROW
from engine.library.records import Download, Estimate, PreparePlan


def plain(words: str) -> str:
    return words.replace(NARROW, " ")


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, ""), (32_500_000, "32M"), (125_000_000, "125M"), (1_000_000_000, "1B"), (6_740_000_000, "6.7B"),
     (7_000_000_000, "7B"), (46_700_000_000, "47B"), (175_000_000_000, "175B")],
)  # fmt: skip
def test_parameters_are_short(count: int, words: str) -> None:
    assert model_labels.parameters(count) == words


def test_memory_is_counted_as_it_is_sold() -> None:
    assert plain(model_labels.memory(24 * 2**30)) == "24.0 GB"
    assert plain(model_labels.memory(60 * 2**20)) == "60 MB"
    assert plain(model_labels.whole_memory(21.4 * 2**30)) == "21 GB"
    assert plain(model_labels.whole_memory(7.6 * 2**30)) == "7.6 GB"


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (estimate("hybrid", 24.2, low_tok_s=20.1, high_tok_s=27.4), ("≈ 24 tok/s", "20 to 27")),
        (estimate("hybrid", 10.6, low_tok_s=9.2, high_tok_s=12.1), ("≈ 11 tok/s", "9 to 12")),
        (estimate("cpu", 3.1, low_tok_s=2.64, high_tok_s=3.47), ("≈ 3.1 tok/s", "2.6 to 3.5")),
        (estimate("gpu", 52.0, low_tok_s=52.0, high_tok_s=52.0), ("≈ 52 tok/s", "estimated")),
        (estimate("no", None, short=8), ("No estimate", "does not fit")),
        (estimate("gpu", None), ("No estimate", "")),
        (None, ("–", "")),
    ],
)
def test_an_estimate_carries_its_range(known: Estimate | None, words: tuple[str, str]) -> None:
    rate, span = model_labels.speed(known)
    assert (plain(rate), span) == words


def test_a_rate_of_the_model_as_preparing_makes_it_says_so() -> None:
    known = replace(estimate("hybrid", 24.2, low_tok_s=20.1, high_tok_s=27.4), once_prepared=True)
    assert numbers_in(model_labels.speed(known)[1]) == ["20", "27"], "the files as they are have another rate"
    assert numbers_in(model_labels.speed(replace(known, high_tok_s=20.1))[1]) == []


def test_what_was_measured_here_carries_neither_sign_nor_range() -> None:
    rate, span = model_labels.speed(estimate("hybrid", 24.0), 39.12)
    assert (plain(rate), span) == ("39.1 tok/s", "measured here")


def test_a_model_that_does_not_fit_says_need_and_room_that_differ_by_what_is_missing() -> None:
    known = estimate("no", None, 10 * 1.073741824, 29 * 1.073741824, short=8 * 1.073741824)
    assert numbers_in(model_labels.short_of(known)) == ["39 GB", "31 GB"]


def test_a_model_that_only_just_does_not_fit_says_so_with_decimals() -> None:
    known = estimate("no", None, 0, 23.1 * 1.073741824, short=1.6 * 1.073741824)
    assert numbers_in(model_labels.short_of(known)) == ["23.1 GB", "21.5 GB"]


def test_the_bar_is_the_share_of_what_there_is() -> None:
    share, rest = model_labels.bar(estimate("hybrid", 20, 8, 2))
    assert share == pytest.approx(0.8)
    assert rest == pytest.approx(1 - 10 / 31.9)
    assert model_labels.bar(estimate("no", None, 20, 40, short=28))[1] == 0.0


def test_this_pc_in_a_line() -> None:
    from dataclasses import replace

    assert "RTX 4070" in model_labels.machine(MACHINE)
    assert numbers_in(model_labels.machine(MACHINE)) == ["4070", "10.2 GB", "20 GB"]
    bare = replace(MACHINE, gpu="", measured=False, cores=1)
    assert numbers_in(model_labels.machine(bare)) == ["1", "20 GB"]


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, ""), (3, "about 5 s"), (42, "about 40 s"), (57, "about 1 min"), (250, "about 4 min"),
     (3590, "about 1 h"), (4800, "about 1 h 20 min"), (100_000, "about 28 h")],
)  # fmt: skip
def test_time_left_is_rounded_and_says_about(value: float | None, words: str) -> None:
    assert plain(model_labels.duration(value)) == words


@pytest.mark.parametrize(
    ("state", "words"),
    [("downloading", ("1.9 of 4.3 GB · 38 MB/s", "about 1 min left")), ("paused", ("Paused · 1.9 of 4.3 GB", "")),
     ("waiting", ("Waiting for the network", "1.9 of 4.3 GB")), ("checking", ("Checking the file", "about 1 min left")),
     ("queued", ("Queued", "1.9 of 4.3 GB")), ("failed", ("Stopped", "1.9 of 4.3 GB"))],
)  # fmt: skip
def test_the_lines_below_a_downloads_bar(state: str, words: tuple[str, str]) -> None:
    download = Download("d", "m", "n", "o/r", state, int(1.9 * GB), int(4.3 * GB), 38e6, 63.0)  # type: ignore[arg-type]
    assert tuple(map(plain, model_labels.download_lines(download))) == words


def test_paces_and_small_sizes() -> None:
    assert [plain(model_labels.pace(n)) for n in (None, 0.0, 420_000, 2.34e6, 38e6)] == [
        "", "", "420 kB/s", "2.3 MB/s", "38 MB/s",
    ]  # fmt: skip
    assert plain(model_labels.fetched(12_000_000, 65_000_000)) == "12 of 65 MB"


# --- one rate


@given(st.floats(0.1, 900), st.floats(1.06, 4), st.none() | st.floats(0.1, 900), st.floats(0.2, 5), st.floats(0.2, 5))
def test_one_model_has_one_rate_wherever_it_is_shown(
    predicted: float, gain: float, measured: float | None, solver: float, loaded: float
) -> None:
    """solver, loaded: how far preparation's and the loaded engine's own predictions are off the card's estimate."""
    known = estimate("gpu", predicted, low_tok_s=predicted / 1.2, high_tok_s=1.2 * predicted)
    rate = model_labels.rate_of(known, measured)
    assert rate is not None
    assert rate.is_measured is (measured is not None)
    shown = model_labels.rate_text(rate)[0]
    plan = PreparePlan("m", (), predicted * solver, predicted * solver * gain, 1.0, 0, False)
    assert shown in gain_text(plan, rate)
    assert ("measured here" in gain_text(plan, rate)) is rate.is_measured
    then = rate.changed(plan.now_tok_s, plan.then_tok_s)
    assert then is not None
    assert then.tok_s == pytest.approx(rate.tok_s * gain), "what is gained is gained on the rate that is known"
    placement = {"line": "all in RAM, about 74 tok/s", "where": "all in RAM", "predicted_tok_s": predicted * loaded}
    assert Placed("m", placement, rate=rate).line.startswith(f"all in RAM, {shown}")


def test_a_rate_that_nobody_knows_is_the_engines_own() -> None:
    assert model_labels.rate_of(None) is None
    assert model_labels.rate_of(estimate("no", None, short=1)) is None
    assert Placed("m", {"line": "all in RAM, about 74 tok/s", "where": "all in RAM"}).line.endswith("74\u202ftok/s")
    assert numbers_in(gain_text(PreparePlan("m", (), None, 12.0, 1.0, 0, False), None)) == ["12 tok/s"]


# --- what does not fit


@given(st.integers(0, 200 * 2**30), st.integers(0, 200 * 2**30), st.integers(1, 200 * 2**30))
@example(0, round(15.14 * 2**30), round(0.06 * 2**30))  # "0.1 GB too big. Needs 15.1 GB. This PC has 15.1 GB for it."
@example(0, 15 * 2**30, 1)
def test_need_room_and_what_is_missing_add_up_as_they_are_printed(vram: int, ram: int, short: int) -> None:
    short = min(short, vram + ram) or 1
    known = replace(estimate("no", None), vram_bytes=vram, ram_bytes=ram, short_bytes=short)
    found = model_labels.shortfall(known)
    need, room, missing = (
        Decimal(size.removesuffix(f"{NARROW}GB")) for size in (found.need, found.room, found.missing)
    )
    assert need == room + missing
    assert missing > 0
    assert missing * 2**30 >= short, "freeing what is missing is enough"
    assert need * 2**30 >= vram + ram
    assert room * 2**30 <= max(vram + ram - short, 0)
    assert found.need in model_labels.short_of(known)
    assert too_big(known).startswith(found.missing)


def test_experts_on_the_disk_are_told_with_their_size() -> None:
    known = estimate("disk", 1.6, gpu=0, ram=5, disk_bytes=11 << 30)
    assert numbers_in(model_labels.from_disk(known)) == ["11.0 GB"]
    assert numbers_in(model_labels.place(known))[-1] == "11.0 GB"
    assert model_labels.bar(known)[1] == 0
    assert model_labels.rate_of(known) is not None
    assert model_labels.rate_of(estimate("disk", None)) is None
