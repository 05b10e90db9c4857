"""What the live panel shows, as data: what is unknown stays unknown, the rest is the engine's or the monitor's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from live_scenes import CARD, GIB, ON_CARD, ON_CPU, a_live, a_live_of_experts, a_minute, a_result, a_sample
from support.shown_text import numbers_in

from app.clients.engine_status import EngineStatus, Phase
from app.clients.live_figures import UNKNOWN, LiveFigures, milliseconds, share, size
from app.units import NARROW
from engine.machine.monitor import GpuSample, MachineSample
from engine.service.protocol import FEWEST_READ, Live


def test_nothing_is_known_at_first() -> None:
    figures = LiveFigures()
    speed = figures.speed(0.0)
    assert (speed.value, speed.points) == (f"–{NARROW}tok/s", [])
    assert [fact.value for fact in speed.facts] == ["–", "–", "–"]
    assert figures.token_times().total is None
    assert [(graph.title, graph.value) for graph in figures.graphs(0.0)] == [("CPU", "–"), ("RAM", "–")]
    assert figures.neurons() == ""


def test_reading_a_few_tokens_has_no_rate() -> None:
    figures = LiveFigures()
    for tokens, known in ((FEWEST_READ + 4, True), (FEWEST_READ + 3, False)):
        figures.take_result(replace(a_result(), prompt_tokens=tokens, reused_tokens=4))
        assert (figures.speed(0.0).facts[1].value != UNKNOWN) == known


def test_the_rate_of_now_while_writing_and_the_last_answers_after_it() -> None:
    figures = LiveFigures()
    now = a_minute(figures)
    figures.take_live(a_live())
    speed = figures.speed(now)
    assert speed.value == f"39.1{NARROW}tok/s"
    assert numbers_in(speed.of) == ["38.7 tok/s"]
    assert [fact.value for fact in speed.facts] == [f"340{NARROW}ms", f"612{NARROW}tok/s", "13.8%", "83%"]
    assert speed.working
    figures.take_result(a_result())
    figures.take_live(Live("", "sparse"))
    figures.take_status(replace(ON_CARD, phase=Phase.READY))
    speed = figures.speed(now)
    assert (speed.value, numbers_in(speed.of)) == (f"38.7{NARROW}tok/s", [])
    assert not speed.working
    figures.take_status(replace(ON_CARD, phase=Phase.READING))
    assert figures.speed(now).value == f"–{NARROW}tok/s", "nothing has been written of this answer"


def test_experts_have_figures_of_their_own() -> None:
    figures = LiveFigures()
    now = a_minute(figures)
    live = a_live_of_experts()
    figures.take_live(live)
    facts = figures.speed(now).facts
    assert [fact.value for fact in facts[2:]] == ["8 of 128", "87%"]
    assert numbers_in(facts[2].more) == ["8", "128"]
    assert numbers_in(facts[3].more) == ["214"]
    assert [stage.words for stage in figures.token_times().stages if stage.key.endswith("ffn")] == ["Experts"] * 2
    assert figures.neurons_at_rest() == ""
    partly = figures.neurons()
    figures.take_live(replace(live, on_gpu=[1.0] * 48))
    whole = figures.neurons()
    figures.take_live(replace(live, on_gpu=[0.0] * 48, chosen=[], resident=[]))
    assert len({partly, whole, figures.neurons()}) == 3
    on_cpu = replace(live, on_gpu=[0.0] * 48, chosen=[], resident=[], reads_experts=True, disk_bytes=2.3e7)
    in_ram = figures.neurons()
    figures.take_live(on_cpu)
    assert figures.neurons() != in_ram, "they are not all in RAM"
    assert figures.speed(now).facts[-1].value == f"23{NARROW}MB"
    idle = replace(live, id="", token_s=None, chosen=[[0] * 64] * 48)
    figures.take_live(idle)
    figures.take_status(replace(figures.status, phase=Phase.READY))
    assert figures.neurons_at_rest()
    figures.take_live(replace(idle, on_gpu=[1.0] * 48))
    assert not figures.neurons_at_rest(), "choices are not counted where all experts are on the GPU"


def test_the_graph_of_the_rate_is_what_was_written_each_second() -> None:
    figures = LiveFigures()
    now = a_minute(figures)
    points = figures.speed(now).points
    assert points[0][1] is None, "nobody knows what was before the first look"
    assert [value for _, value in points[1:12]] == [0.0] * 11
    assert points[-1] == (pytest.approx(0.2), 39.0)
    assert max(age for age, _ in points) < 62


def test_an_answer_that_begins_anew_counts_from_nothing() -> None:
    figures = LiveFigures()
    figures.take_status(replace(ON_CPU, tokens=500))
    figures.take_sample(a_sample(), 0.0)
    figures.take_status(replace(ON_CPU, tokens=20))
    figures.take_sample(a_sample(), 1.0)
    assert figures.speed(1.0).points[-1][1] == 20


def test_after_a_time_out_of_sight_no_rate_is_invented() -> None:
    figures = LiveFigures()
    figures.take_sample(a_sample(), 0.0)
    figures.take_status(replace(ON_CPU, tokens=500))
    figures.take_sample(a_sample(), 40.0)
    assert figures.speed(40.0).points[-1][1] is None


def test_the_time_of_a_token_by_side() -> None:
    figures = LiveFigures()
    figures.take_status(ON_CARD)
    figures.take_live(a_live())
    times = figures.token_times()
    assert times.has_gpu
    assert [stage.words for stage in times.stages if stage.side == "gpu"] == [
        "Attention", "Predictor", "Waiting", "Hot neurons", "Head",
    ]  # fmt: skip
    assert [stage.words for stage in times.stages if stage.side == "cpu"] == [
        "Waiting", "Cold neurons", "Sampling", "Other",
    ]  # fmt: skip
    figures.take_live(Live("", "sparse", on_gpu=[0.5]))
    assert figures.token_times() == times, "what was measured stands until something else is"
    figures.take_status(replace(ON_CARD, phase=Phase.LOADING))
    assert figures.token_times().total is None
    figures.take_status(ON_CPU)
    figures.take_live(a_live(card=False))
    assert "Neurons" in [stage.words for stage in figures.token_times().stages]


def test_at_rest_the_time_of_a_token_and_the_rate_are_of_the_same_span() -> None:
    figures = LiveFigures()
    figures.take_status(replace(ON_CARD, phase=Phase.WRITING))
    figures.take_live(a_live())
    figures.take_result(replace(a_result(), decode_tok_s=129.0))
    while_writing = figures.token_times()
    assert while_writing.total == a_live().token_s
    figures.take_status(ON_CARD)
    times, speed = figures.token_times(), figures.speed(0.0)
    assert times.total is not None
    assert speed.value.startswith(f"{1 / times.total:.0f}")
    assert [one.seconds / times.total for one in times.stages] == pytest.approx(
        [one.seconds / (while_writing.total or 1) for one in while_writing.stages]
    ), "how the time divides is what was measured"


def test_one_card_two_cards_none_and_a_lost_one() -> None:
    figures = LiveFigures()
    now = a_minute(figures)
    titles = {graph.title: graph for graph in figures.graphs(now)}
    assert list(titles) == ["GPU load", "VRAM", "CPU", "RAM"]
    assert titles["GPU load"].line == f"142{NARROW}W · 61{NARROW}°C"
    assert titles["VRAM"].value == f"10.5{NARROW}GB"
    assert titles["VRAM"].line == f"of 12{NARROW}GB · Hearth 9.4{NARROW}GB"
    for title in ("VRAM", "RAM"):
        newest = titles[title].points[-1][1]
        assert newest is not None
        assert titles[title].value == titles[title].say(newest), "the figure is the end of the line"
    assert titles["VRAM"].points[-1][1] == pytest.approx(10.5 * GIB)
    assert titles["VRAM"].others[-1][1] == pytest.approx(1.1 * GIB)

    two = LiveFigures()
    now = a_minute(two, n_gpus=2)
    assert [graph.title for graph in two.graphs(now)] == [
        "GPU 0 load", "VRAM 0", "GPU 1 load", "VRAM 1", "CPU", "RAM",
    ]  # fmt: skip

    none = LiveFigures()
    now = a_minute(none, ON_CPU, n_gpus=0)
    assert [graph.title for graph in none.graphs(now)] == ["CPU", "RAM"]
    assert none.why_no_gpu() == "no NVIDIA driver is installed"

    lost = LiveFigures()
    now = a_minute(lost, lost_at=40)
    load = lost.graphs(now)[0]
    assert (load.value, load.line) == ("–", "the GPU is lost")
    assert load.points[-1][1] is None
    assert load.points[10][1] is not None


def test_where_the_driver_does_not_tell_whose_memory_it_is_the_engine_does() -> None:
    figures = LiveFigures()
    figures.take_status(ON_CARD)
    gpu = GpuSample(0, CARD, 50.0, 10 * GIB, 12 * GIB, None)
    figures.take_sample(a_sample(0, (gpu,)), 0.0)
    assert figures.graphs(0.0)[1].line.endswith(f"Hearth 9.0{NARROW}GB")
    figures.take_sample(a_sample(0, (replace(gpu, name="Another"),)), 1.0)
    assert figures.graphs(1.0)[1].line.endswith(f"Hearth 0{NARROW}MB")


def test_unknown_figures_of_a_card_are_no_zeros() -> None:
    figures = LiveFigures()
    figures.take_sample(MachineSample(None, None, 0, GIB, 0, (GpuSample(0, "Old"),)), 0.0)
    load, memory, cpu, _ = figures.graphs(0.0)
    assert (load.value, memory.value, cpu.value) == ("–", "–", "–")
    assert load.line == memory.line == ""


def test_the_map_says_what_it_shows() -> None:
    figures = LiveFigures()
    figures.take_status(ON_CARD)
    figures.take_live(a_live())
    counted = figures.neurons()
    assert numbers_in(counted) == ["39%", "83%"]
    figures.take_live(replace(a_live(), has_zeros=False))
    assert numbers_in(figures.neurons()) == [], "none is skipped"
    figures.take_live(replace(a_live(), is_counted=False))
    assert numbers_in(figures.neurons()) == ["39%", "83%"]
    assert figures.neurons() != counted, "which of them fire is not known"
    figures.take_status(ON_CPU)
    figures.take_live(a_live(card=False))
    assert numbers_in(figures.neurons()) == [], "no share where there is no GPU"
    assert figures.neurons()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (EngineStatus(), (False, False, [])),
        (EngineStatus(phase=Phase.OFF), (False, False, [])),
        (replace(ON_CPU, phase=Phase.READY), (True, False, [])),
        (replace(ON_CPU, phase=Phase.READING, done=50, total=100), (True, False, ["100", "50%"])),
        (ON_CPU, (True, True, [])),
    ],
)
def test_the_state_names_model_chat_and_progress(status: EngineStatus, expected: tuple[bool, bool, list[str]]) -> None:
    figures = LiveFigures()
    figures.take_status(status)
    state = figures.state("Sorting")
    assert ("Bamboo DPO 7B" in state, "Sorting" in state, numbers_in(state)) == expected


def test_numbers_in_words() -> None:
    assert [share(None), share(0.0), share(0.061), share(0.36), share(1.0)] == ["–", "0%", "6.1%", "36%", "100%"]
    assert [size(None), size(300), size(50 << 20), size(9.4 * GIB)] == [
        "–", f"0{NARROW}MB", f"50{NARROW}MB", f"9.4{NARROW}GB",
    ]  # fmt: skip
    assert [milliseconds(0.0006), milliseconds(0.0256), milliseconds(2.0)] == [
        f"0.6{NARROW}ms", f"25.6{NARROW}ms", f"2.0{NARROW}s",
    ]  # fmt: skip
