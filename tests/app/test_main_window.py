"""The real window, driven by keys and clicks, with the engine in a process and in the worker thread."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from person import Arrive
from PySide6.QtCore import Q_ARG, QMetaObject, QPoint, Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from support.repetitions import some_daily
from support.systems import is_alive, kill

from app.chat.store.conversation import Conversation, Message, MessageState, Role
from app.chat.store.store import Store
from app.errors import StoreError
from app.settings import AppSettings, load_settings
from app.startup.bootstrap import folders_in
from app.ui.transcript.own_message import MessageEditor
from app.ui.widgets.floating import ConfirmDialog, Toast
from app.ui.widgets.popover import Popover
from engine.assets import starter_model

pytestmark = pytest.mark.gui

HERE = Path(__file__).parent
CTRL = Qt.KeyboardModifier.ControlModifier
FAKE = [sys.executable, str(HERE / "fake_host.py")]
REAL = pytest.mark.skipif(
    not any(starter_model().glob("*.gguf")), reason="the starter model is not in assets/models/starter-chat"
)


LOCATIONS = ["process", "in-thread"]


@REAL
@pytest.mark.parametrize("location", some_daily(LOCATIONS, ["process"]))
def test_the_starter_model_answers_to_the_end_and_remembers_the_turn(arrive: Arrive, location: str) -> None:
    person = arrive(location, model="starter-chat", settings=AppSettings(temperature=0.0))
    assert person.page.is_empty
    person.wait_ready()
    first = person.ask("What is the capital of France?")
    assert first.state is MessageState.COMPLETE
    assert "Paris" in first.text
    assert person.shown == person.saved()
    assert first.stats is not None
    second = person.ask("Tell me a story about a fox.")
    assert second.state is MessageState.COMPLETE
    assert second.stats is not None
    assert second.stats["reused_tokens"] >= first.stats["context_used"] - 8, "the turn before is not computed again"
    assert len(person.page.transcript.views) == 4
    assert person.window.windowTitle() == "What is the capital of France? – Hearth"


@REAL
@pytest.mark.parametrize("location", some_daily(LOCATIONS, ["in-thread"]))
def test_the_starter_models_answer_is_stopped_with_esc(arrive: Arrive, location: str) -> None:
    person = arrive(location, model="starter-chat", settings=AppSettings(temperature=0.0))
    person.wait_ready()
    person.hearth.controller.text_appended.connect(lambda *_: person.press(Qt.Key.Key_Escape))
    answer = person.ask("Tell me a long story about a fox and a hen.")
    assert answer.text.strip()
    # A model of this size may be done before the key is heard; what was written is kept either way.
    assert answer.state in {MessageState.CANCELLED, MessageState.COMPLETE}
    assert person.saved()[-1] == answer


@REAL
def test_the_real_engine_is_killed_and_is_back(arrive: Arrive) -> None:
    person = arrive(model="starter-chat", settings=AppSettings(temperature=0.0))
    person.wait_ready()
    kill(person.pids[0])
    person.wait(lambda: len(person.pids) == 2)
    person.wait_ready()
    assert person.ask("Hello").state is MessageState.COMPLETE


@pytest.mark.parametrize("location", LOCATIONS)
def test_stop_keeps_the_partial_answer(arrive: Arrive, location: str) -> None:
    person = arrive(location)
    person.wait_ready()
    person.send("words 100000 pace 0.01")
    person.wait(person.writing("word3 "))
    assert person.page.composer.send.accessibleName() == "Stop"
    person.qtbot.mouseClick(person.page.composer.send, Qt.MouseButton.LeftButton)
    person.wait(lambda: person.finished)
    assert person.finished[0].state is MessageState.CANCELLED
    assert person.shown[-1].text.startswith("word0 word1 word2 word3 ")
    person.wait_ready()
    assert person.ask("and on").text == "and on "


def test_engine_killed_in_mid_answer_keeps_every_word_and_sends_again(arrive: Arrive) -> None:
    person = arrive()
    person.wait_ready()
    person.send("words 100000 pace 0.005")
    person.wait(person.writing("word9 "))
    kill(person.pids[0])
    person.wait(lambda: person.finished)
    kept = person.shown[-1]
    assert kept.state is MessageState.FAILED, "Hearth did not close"
    assert "word9 " in kept.text
    assert person.page.banner.isVisible()
    person.wait_ready()
    person.page.remedy.emit("send-again")
    assert not person.page.banner.isVisible()
    person.wait(lambda: person.shown[-1].id != kept.id and person.writing("word3 ")())
    assert len(person.shown) == 2
    chat = person.hearth.controller.open_conversation
    assert kept in (person.hearth.memory.messages(chat or "") or []), "the first attempt stays, as another version"
    person.press(Qt.Key.Key_Escape)
    person.wait(lambda: len(person.finished) == 2)


@pytest.mark.parametrize("location", LOCATIONS)
def test_closing_in_mid_answer_ends_every_thread_and_keeps_every_word(arrive: Arrive, location: str) -> None:
    person = arrive(location)
    person.wait_ready()
    person.send("words 100000 pace 0.002")
    person.wait(person.writing("word9 "))
    person.leave()
    assert person.stored()[-1].state is MessageState.INTERRUPTED
    assert "word9 " in person.stored()[-1].text


def test_chats_are_switched_renamed_deleted_and_brought_back(arrive: Arrive) -> None:
    person = arrive()
    person.wait_ready()
    person.ask("first chat")
    person.window.sidebar.new_chat.emit()
    assert person.page.is_empty
    assert person.page.composer.field.hasFocus() or not person.window.isActiveWindow()
    person.ask("second chat")
    first = person.hearth.memory.conversations()[1]
    person.window.sidebar.conversation_selected.emit(first.id)
    assert [m.text for m in person.shown] == ["first chat", "first chat "]
    person.window.sidebar.rename_requested.emit(first.id, "Another name")
    assert person.window.windowTitle() == "Another name – Hearth"
    person.page.title_menu.emit("delete")
    assert person.page.is_empty
    (toast,) = person.page.findChildren(Toast)
    toast._take_back()
    assert [m.text for m in person.shown] == ["first chat", "first chat "]
    person.window.show_toast("Done", None)
    (toast,) = person.page.findChildren(Toast)
    assert toast.sign == "check"
    person.hearth.controller.toast.emit("Still answering", "warn")
    (toast,) = person.page.findChildren(Toast)
    assert (toast.sign, toast.button) == ("warn", None)
    toast.settle()
    assert toast.geometry().center().y() < person.page.transcript.mapTo(person.page, QPoint(0, 0)).y(), "in the bar"


def test_an_open_edit_is_there_after_a_restart_and_a_cancelled_one_is_not(arrive: Arrive) -> None:
    person = arrive(location="in-thread")
    person.wait_ready()
    person.ask("hello")
    person.press(Qt.Key.Key_Up)
    for field in [one.field for one in person.page.findChildren(MessageEditor)]:
        field.set_text("half a sentence")
    person.leave()
    for left in ("half a sentence", ""):
        person = arrive(location="in-thread", settings=load_settings(person.places.settings_file)[0])
        person.wait_ready()
        person.wait(lambda: person.page.transcript.views)  # noqa: B023 - called at once
        editors = person.page.findChildren(MessageEditor)
        assert [one.field.text() for one in editors] == [left] * bool(left)
        for editor in editors:
            person.qtbot.keyClick(editor.field, Qt.Key.Key_Escape)
        person.leave()


def test_two_chats_at_once_and_the_running_one_shown_live(arrive: Arrive, tmp_path: Path) -> None:
    person = arrive()
    person.wait_ready()
    person.send(f"words 400 until {tmp_path / 'go_on'}")
    person.wait(person.writing("word3 "))
    running = person.hearth.controller.open_conversation
    assert running is not None
    person.window.sidebar.new_chat.emit()
    person.send("me too")
    assert person.shown[-1].state is MessageState.WRITING
    person.window.sidebar.conversation_selected.emit(running)
    assert not person.finished
    (tmp_path / "go_on").touch()
    person.wait(person.writing("word399 "))
    person.wait(lambda: person.finished)
    other = next(c for c in person.hearth.memory.conversations() if c.id != running)
    person.window.sidebar.conversation_selected.emit(other.id)
    person.wait(person.writing("me too "))


def test_a_chat_longer_than_what_is_built_opens_again(arrive: Arrive, tmp_path: Path) -> None:
    person = arrive()
    person.wait_ready()
    for number in range(3):
        person.ask(f"message {number}")
    chat = person.hearth.controller.open_conversation
    person.leave()
    settings, _ = load_settings(person.places.settings_file)
    assert settings.last_conversation == chat
    again = arrive(settings=settings)
    again.wait(lambda: len(again.shown) == 6)
    assert again.shown == person.stored()


def test_a_corrupt_database_is_said_and_the_window_works(arrive: Arrive, tmp_path: Path) -> None:
    (tmp_path / "chats.db").write_bytes(os.urandom(8192))
    person = arrive()
    person.wait_ready()
    person.wait(person.page.banner.isVisible)
    assert person.ask("still here").text == "still here "
    assert list(tmp_path.glob("chats-damaged-*"))


def test_a_data_folder_that_cannot_be_written_is_said_and_the_window_works(arrive: Arrive, tmp_path: Path) -> None:
    person = arrive(folder=tmp_path)
    person.leave()
    (tmp_path / "chats.db").unlink()
    (tmp_path / "chats.db").mkdir()  # also root cannot write a file here
    (tmp_path / "settings.json").unlink()
    (tmp_path / "settings.json").mkdir()
    blocked = arrive(folder=tmp_path)
    blocked.wait_ready()
    blocked.wait(blocked.page.banner.isVisible)
    assert blocked.ask("still here").text == "still here "


def test_a_full_disk_is_said_and_nothing_is_lost(arrive: Arrive, monkeypatch: pytest.MonkeyPatch) -> None:
    person = arrive()
    person.wait_ready()
    person.ask("before")
    assert len(person.saved()) == 2
    real = Store.append

    def full(store: Store, conversation_id: str, message: Message) -> None:
        raise StoreError("full", "database or disk is full", store.path)

    monkeypatch.setattr(Store, "append", full)
    assert person.ask("while full").text == "while full "
    person.wait(person.page.banner.isVisible)
    assert len(person.stored()) == 2
    said = person.page.banner.accessibleName()
    with monkeypatch.context() as patch:
        patch.setattr("app.settings.os.fsync", no_space)
        person.window.preferences.set(theme="dark")
        person.wait(lambda: person.hearth.reads.waiting() == [])
        person.qtbot.wait(20)
    assert person.page.banner.accessibleName() == said, "chats that are not saved matter more than settings"
    assert not person.window.close(), "Hearth asks before words are lost"
    person.window.ask_to_quit()  # as the tray does meanwhile
    assert len([one for one in person.window.findChildren(ConfirmDialog) if one.isVisible()]) == 1
    QApplication.activeModalWidget().reject()
    person.press(Qt.Key.Key_Q, CTRL)
    QApplication.activeModalWidget().reject()
    assert person.window.isVisible()
    monkeypatch.setattr(Store, "append", real)
    person.page.remedy.emit("retry-save")
    person.wait(lambda: not person.page.banner.isVisible())
    assert person.saved() == person.shown
    person.wait(lambda: load_settings(person.places.settings_file)[0].theme == "dark")
    assert person.window.close()


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_model_that_is_missing_is_said_with_a_remedy(arrive: Arrive) -> None:
    person = arrive(model="fake-missing")
    person.wait(person.page.banner.isVisible)
    assert person.page.banner.message is not None
    assert person.page.banner.message.remedy_action


def test_geometry_sidebar_and_zoom_are_remembered(arrive: Arrive) -> None:
    person = arrive()
    person.wait_ready()
    person.window.resize(1100, 700)
    person.window.sidebar.toggle()
    person.qtbot.keyClick(person.window, Qt.Key.Key_Plus, Qt.KeyboardModifier.ControlModifier)
    person.leave()
    settings, problem = load_settings(person.places.settings_file)
    assert problem is None
    assert not settings.sidebar_open
    assert settings.text_px == 16
    again = arrive(settings=settings)
    assert again.window.sidebar.is_rail


def test_nothing_is_sampled_while_nobody_can_see_it(arrive: Arrive) -> None:
    person = arrive()
    with person.qtbot.waitSignal(person.hearth.monitor.sampled):
        pass
    seen: list[bool] = []
    person.window.visible_changed.connect(seen.append)
    person.window.showMinimized()
    person.window.showNormal()
    person.window.hide()
    assert seen == [False, True, False]
    monitor = person.hearth.monitor  # its thread has heard of all that, once it runs this
    QMetaObject.invokeMethod(monitor, "_watch", Qt.ConnectionType.BlockingQueuedConnection, Q_ARG(int, 0))
    assert not monitor._timer.isActive()


def test_a_popover_closes_when_another_opens_or_what_it_is_beside_goes(arrive: Arrive) -> None:
    person = arrive()
    person.wait_ready()
    window = person.window
    person.ask("one")

    def shown() -> list[str]:
        return [popover.accessibleName() for popover in window.findChildren(Popover) if popover.isVisible()]

    before = []
    for command in ("model_menu", "presets", "context", "palette"):
        person.wait(lambda command=command: window.commands.can(command))  # "context" once the tokens are counted
        window.commands.run(command)
        assert len(shown()) == 1, command
        assert shown() != before, "the other one"
        before = shown()
    window.commands.run("find")
    assert shown() == [], "the keyboard is elsewhere, so Esc would not reach it"
    assert person.page.find_bar.isAncestorOf(QApplication.focusWidget() or window)
    window.commands.run("presets")
    window.commands.run("models")
    person.wait(lambda: shown() == [])
    window.show_chat()
    assert shown() == []
    window.commands.run("presets")
    window.commands.run("new_chat")
    person.wait(lambda: not window.shown_chat)
    assert shown() == []


def test_settings_and_about_open_from_the_keyboard(arrive: Arrive) -> None:
    person = arrive()
    person.wait_ready()
    person.window.open_settings()
    dialog = QApplication.activeModalWidget()
    assert dialog is not None
    dialog.close()
    person.window.open_about()
    dialog = QApplication.activeModalWidget()
    assert dialog is not None
    dialog.close()


def test_a_text_is_found_in_all_chats_and_then_in_one_with_keys_alone(arrive: Arrive, tmp_path: Path) -> None:
    store, _ = Store.rescue(folders_in(tmp_path).chats_file)
    for n in range(3):
        talk = Conversation(title=f"Chat {n}", updated_at=1000.0 + n)
        store.save_conversation(talk)
        asked = Message(Role.USER, f"Where is needle {n}?", created_at=1000.0)
        store.append(talk.id, asked)
        text = "<think>A needle?</think>The **needle** is here.\n\nA second needle."
        store.append(talk.id, Message(Role.ASSISTANT, text, parent=asked.id, created_at=1001.0))
    store.close()
    person = arrive("in-thread")
    person.wait_ready()
    bar, find = person.page.find_bar, person.page.transcript.text_find
    person.press(Qt.Key.Key_F, CTRL)  # nothing to find in a new chat
    field = person.window.sidebar.panel.field
    assert field.hasFocus()
    person.window.sidebar.panel.close_search()
    person.press(Qt.Key.Key_F, CTRL | Qt.KeyboardModifier.ShiftModifier)
    person.qtbot.keyClicks(field, "second needle")
    person.qtbot.keyClick(field, Qt.Key.Key_Return)
    person.wait(lambda: find.total == 1 and find.number == 1)
    person.wait(person.page.composer.field.hasFocus)
    assert bar.isHidden()
    person.press(Qt.Key.Key_Escape)
    assert not find.is_on
    person.press(Qt.Key.Key_F, CTRL)
    assert bar.field.hasFocus()
    person.qtbot.keyClicks(bar.field, "needle")
    person.wait(lambda: bar.words.text() == "1 of 4")
    person.qtbot.keyClick(bar.field, Qt.Key.Key_F3)
    person.wait(lambda: bar.words.text() == "2 of 4")
    person.qtbot.keyClick(bar.field, Qt.Key.Key_F3, Qt.KeyboardModifier.ShiftModifier)
    person.wait(lambda: bar.words.text() == "1 of 4")
    person.qtbot.keyClick(bar.field, Qt.Key.Key_Escape)
    assert bar.isHidden()
    assert person.page.composer.field.hasFocus()
    person.window.show_models()
    page = person.window.pages.models_page
    assert page is not None
    person.window.show_live()
    person.window.pages.setCurrentWidget(page)
    person.window.commands.run("find")
    assert page.search.hasFocus()


KILLED_APP = """
import sys, time
from pathlib import Path
sys.path.insert(0, {here!r})
import fake_host
from app.startup import bootstrap
from app.clients.engine_process import ProcessHost
from app.settings import AppSettings
places = bootstrap.folders_in(Path({folder!r}))
places.log.mkdir(parents=True, exist_ok=True)
app = bootstrap.QApplication([])
bootstrap.apply_look(AppSettings())
fake = [sys.executable, fake_host.__file__]
makers = {{"process": lambda emit: ProcessHost(emit, places.log, fake)}}
hearth = bootstrap.Hearth(places, AppSettings(), None, "fake", makers)
text = []
def grew(message_id, words):
    text.append(words)
    print(time.monotonic(), "".join(text).count(" "), flush=True)
hearth.controller.text_appended.connect(grew)
hearth.engine.process_started.connect(lambda pid: print("engine", pid, flush=True))
hearth.engine.ready.connect(lambda: hearth.controller.send("words 100000 pace 0.005"))
hearth.show()
app.exec()
"""


def test_kill_9_of_the_whole_program_loses_at_most_the_last_words(tmp_path: Path, qtbot: QtBot) -> None:
    code = KILLED_APP.format(here=str(HERE), folder=str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=HERE.parents[1], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
    )  # fmt: skip
    assert process.stdout is not None
    engine_pid = int(process.stdout.readline().split()[1])
    shown: list[tuple[float, int]] = []
    while not shown or shown[-1][0] - shown[0][0] < 3.5:
        at, words = process.stdout.readline().split()
        shown.append((float(at), int(words)))
    process.kill()
    rest, _ = process.communicate()
    shown += [(float(at), int(words)) for at, words in (line.split() for line in rest.splitlines() if line.count(" "))]
    # What is written is saved twice a second; a slow disk needs some time more.
    before = [words for at, words in shown if at <= shown[-1][0] - 3.0]
    store, report = Store.rescue(tmp_path / "chats.db")
    assert report is None
    (chat,) = store.conversations()
    _, answer = store.messages(chat.id)
    assert answer.text.count(" ") >= before[-1]
    assert answer.text.startswith("word0 word1 ")
    assert store.mark_interrupted() == 1
    store.close()
    qtbot.waitUntil(lambda: not is_alive(engine_pid))  # it ends with its window
