"""A graphics card in the window: chosen, shown, switched without a restart, lost during an answer, and missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from desk import MakeDesk
from person import Arrive
from pytestqt.qtbot import QtBot
from support.shown_text import numbers_in

from app.chat.store.conversation import MessageState
from app.clients.engine_status import EngineStatus, Phase, sentence, why_there
from app.settings import AppSettings
from app.ui.settings.settings_dialog import SettingsDialog
from app.ui.widgets.engine_card import EngineCard, gpu_of
from app.user_messages import describe
from engine import errors
from engine.machine.monitor import GpuSample, MachineSample

GB = 2**30
CARD = GpuSample(1, "GeForce RTX 4090", 71.0, int(21.3 * GB), 24 * GB, 20 * GB, 61.0, 312.0)
OLD = GpuSample(0, "GeForce GT 1030", 2.0, GB // 2, 2 * GB, 0)
ON_CARD = EngineStatus(
    Phase.READY, "Bamboo 7B", "RTX 4090 + CPU, 15 threads", "36% of the neurons fit.", "GeForce RTX 4090",
    21 * GB, 0.83, tok_s=38.64, context_used=512, context_total=4096, load_s=3.1,
)  # fmt: skip
ON_CPU = EngineStatus(Phase.READY, "Pip", "CPU, 7 threads", "No NVIDIA driver is installed.", load_s=0.2)


def sample(*gpus: GpuSample) -> MachineSample:
    return MachineSample(34.0, None, 9 * GB, 64 * GB, GB, gpus)


def test_of_two_cards_of_one_name_the_one_that_holds_ours_is_meant() -> None:
    twin = GpuSample(0, CARD.name, 0.0, GB, 24 * GB, 0)
    assert gpu_of(sample(twin, CARD), CARD.name) is CARD
    assert gpu_of(sample(OLD), "") is None
    assert gpu_of(sample(), CARD.name) is None


# --- the card of the sidebar


def test_the_engines_card_shows_whose_the_memory_is(qtbot: QtBot) -> None:
    card = EngineCard()
    qtbot.addWidget(card)
    card.show()
    card.set_sample(sample(CARD))
    card.set_status(ON_CPU)
    assert card.memory.isHidden()
    assert numbers_in(card.line.words) == ["200 ms"]
    card.set_status(ON_CARD)
    assert card.memory.isVisible()
    assert numbers_in(card.line.words) == ["21.3", "24 GB"]
    assert numbers_in(card.memory.accessibleName()) == ["83", "5"]
    assert (card.memory.ours, card.memory.used) == pytest.approx((20 / 24, 21.3 / 24))
    hidden = GpuSample(1, CARD.name, 71.0, int(22.5 * GB), 24 * GB, None)  # Windows tells nobody's share
    card.set_sample(sample(hidden))
    assert card.memory.ours == pytest.approx(21 / 24), "what the engine says of itself"
    card.set_sample(sample(GpuSample(1, CARD.name, reason="the GPU was lost: restart the computer")))
    assert card.memory.isHidden()
    assert "36% of the neurons fit" in card.toolTip()


# --- switching


def test_switching_loads_the_model_there_and_the_chat_goes_on(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk(model="fake-gpu")
    desk.wait_ready()
    status = desk.engine.status
    assert (status.device, status.gpu) == ("RTX 4090 + CPU, 1 thread", "GeForce RTX 4090")
    assert (status.device_reason, status.vram_bytes) == ("36% of the neurons fit.", 21 * GB)
    shares: list[float | None] = []
    desk.engine.text.connect(lambda _: shares.append(desk.engine.status.gpu_share))
    desk.say("words 3 pace 0")
    assert 0.83 in shares, "while it is written"
    assert desk.engine.status.gpu_share == desk.chat_statuses[-1].gpu_share == 0.84
    desk.controller.send(f"words 20 until {tmp_path / 'go_on'}")
    desk.controller.settings_changed(AppSettings(device="cpu"))
    (tmp_path / "go_on").touch()
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)
    assert desk.last.text.endswith("word19 "), "the answer that runs is not cut short"
    desk.wait(lambda: desk.engine.status.device == "CPU, 1 thread" and desk.engine.is_ready)
    status = desk.engine.status
    assert (status.gpu, status.vram_bytes, status.gpu_share) == ("", None, None)
    assert len(desk.shown) == 4
    desk.say("and here")
    assert desk.chat_statuses[-1].gpu_share is None
    desk.controller.settings_changed(AppSettings(device="cuda"))
    desk.wait(lambda: desk.engine.is_ready and desk.engine.status.gpu)
    assert desk.problems == []
    assert len(desk.shown) == 6


def test_less_on_the_card_than_was_meant_to_is_said(make_desk: MakeDesk) -> None:
    desk = make_desk(model="fake-gpu", settings=AppSettings(vram_budget_gib=2.0))
    desk.wait_ready()
    assert [numbers_in(words) for words, _ in desk.toasts] == [["2.7 GB"]]
    assert "2.7 GB" in numbers_in(desk.engine.status.device_reason)


def test_a_card_that_the_engine_gives_up_is_no_longer_named(make_desk: MakeDesk) -> None:
    desk = make_desk(model="fake-gpu")
    desk.wait_ready()
    desk.say("give-up")
    status = desk.engine.status
    assert (status.device, status.device_reason) == ("CPU, 1 thread", "The GPU is gone.")
    assert (status.gpu, status.vram_bytes, status.gpu_share) == ("", None, None)


def test_a_card_that_was_asked_for_and_is_not_there(arrive: Arrive) -> None:
    person = arrive("in-thread", settings=AppSettings(device="cuda"))
    person.wait(lambda: person.page.composer._status.phase is Phase.FAILED)
    banner = person.page.banner
    assert banner.message is not None
    assert "fake" in banner.message.title
    assert numbers_in(banner.message.sentence) == ["470", "525"]
    assert banner.message.remedy_action == "use-any"
    person.page.remedy.emit(banner.message.remedy_action)
    person.wait_ready()
    assert person.window.settings.device == "auto"
    assert banner.message is None


@pytest.mark.parametrize("location", ["process", "in-thread"])
def test_a_card_that_fails_costs_the_answer_and_not_the_chat(make_desk: MakeDesk, location: str) -> None:
    desk = make_desk(location=location, model="fake-gpu")
    desk.wait_ready()
    first, answer = desk.pid, desk.say("card after 3")
    assert (answer.text, answer.state) == ("word0 word1 word2 ", MessageState.FAILED)
    assert desk.problem is not None
    assert desk.problem.second is not None
    assert (desk.problem.remedy_action, desk.problem.second[1]) == ("send-again", "use-cpu")
    desk.wait_ready()
    assert location == "in-thread" or desk.pid not in (0, first, os.getpid()), "in a process that has not lost it"
    assert desk.problem is not None, "it stays until the question is sent again"
    assert desk.say("still here").text == "still here "


def test_a_gpu_that_a_process_lost_is_used_by_the_next_one(make_desk: MakeDesk) -> None:
    desk = make_desk(location="process", model="fake-gpu")
    desk.wait_ready()
    first = desk.pid
    assert desk.say("lose").state == MessageState.COMPLETE
    desk.qtbot.waitUntil(lambda: desk.pid not in (0, first), timeout=10_000)
    desk.wait_ready()
    second = desk.pid
    assert (desk.engine.status.gpu, desk.problem) == ("GeForce RTX 4090", None)
    assert desk.say("lose").state == MessageState.COMPLETE
    assert desk.say("by the processor").text == "by the processor "
    assert (desk.pid, desk.engine.status.gpu) == (second, ""), "no third process by itself"
    asked: list[object] = []
    desk.engine.embed(["a text"], "", asked.append)
    desk.controller.load_model()
    desk.qtbot.waitUntil(lambda: desk.pid != second, timeout=10_000)
    desk.wait_ready()
    assert desk.engine.status.gpu == "GeForce RTX 4090"
    assert asked == [None], "the request that the old process did not finish has failed"


def test_where_it_runs_is_said_in_the_settings_and_anew_after_a_switch(arrive: Arrive) -> None:
    person = arrive("in-thread", model="fake-gpu")
    person.wait_ready()
    person.window.open_settings()
    dialog = person.window.findChild(SettingsDialog)
    assert isinstance(dialog, SettingsDialog)
    note = dialog.rows["device"].note
    assert "RTX 4090" in note.words
    assert "36%" in numbers_in(note.words)
    dialog.rows["device"].edited.emit("cpu")
    person.wait(lambda: "NVIDIA driver" in note.words and "RTX 4090" not in note.words)
    person.wait_ready()
    dialog.close()


# --- words


@pytest.mark.parametrize(
    ("error", "figures", "actions"),
    [
        (
            errors.DeviceUnavailableError("The GPU cannot be used: the NVIDIA driver 470 is older than 525."),
            ["470", "525"],
            ("use-any", "retry-load"),
        ),
        (
            errors.DeviceMemoryError("The model needs 11.4 GiB of free VRAM; 8.0 GiB are free."),
            ["12.2 GB", "8.6 GB"],
            ("retry-load", "use-cpu"),
        ),
        (
            errors.DeviceFailedError("cuGraphLaunch failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)."),
            [],
            ("send-again", "use-cpu"),
        ),
    ],
)
def test_what_goes_wrong_with_a_card_is_told_without_codes(
    error: errors.EngineError, figures: list[str], actions: tuple[str, str]
) -> None:
    message = describe(error, model="Pip")
    assert numbers_in(message.sentence) == figures
    assert "CUDA" not in message.title + message.sentence
    assert message.second is not None
    assert (message.remedy_action, message.second[1]) == actions
    assert error.message in message.details


def test_parts_become_sentences() -> None:
    assert sentence("now", "", "because of it. ") == "Now. Because of it."
    assert sentence("", " ") == ""


def test_the_reason_does_not_say_twice_that_it_is_the_processor() -> None:
    assert why_there("CPU only: no NVIDIA driver is installed") == "no NVIDIA driver is installed"
    assert why_there("The CPU computes: nothing of the model fits there") == "nothing of the model fits there"
    assert why_there("The CPU computes, as requested") == ""
    assert why_there("GeForce RTX 4090 computes all layers") == "GeForce RTX 4090 computes all layers"
