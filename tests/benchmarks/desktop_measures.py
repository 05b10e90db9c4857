"""What tests/benchmarks/desktop.py measures, one function each, run in a process of its own with a folder of its own.

Each gives figures that JSON holds, with "reached" where a statement sets a bound. Times in the names' units.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from desktop_rooms import (
    ROOT,
    Seat,
    big_model,
    cpu_s,
    environment,
    fill_chats,
    fill_long_chat,
    fill_models,
    hub_process,
    spread,
    tree_of,
)

Figures = dict[str, Any]
LONG = 10_000
QUESTIONS = ("Tell me a story about a shy robot called Bolt.", "Tell me a story about a fox who lived by the sea.")
HEAVY = ("torch", "numba", "pynvml", "huggingface_hub", "transformers")


def child(name: str, folder: Path, wrap: tuple[str, ...] = (), **more: str) -> subprocess.Popen[str]:
    """Another process of this benchmark."""
    command = [*wrap, sys.executable, str(ROOT / "tests" / "benchmarks" / "desktop.py"), "--child", name]
    return subprocess.Popen(
        [*command, "--folder", str(folder)], stdout=subprocess.PIPE, text=True, env=environment(folder, **more)
    )


# --- starting


def start(folder: Path) -> Figures:
    """Painted and composer focused, of three fresh processes after a first one, with 50 models and 5,000 chats."""
    fill_chats(folder, 5_000)
    fill_models(folder, 50)
    runs = []
    child("paint", folder).communicate(timeout=120)  # compiles the code, once
    for _ in range(3):
        began = time.time()
        out, _ = child("paint", folder).communicate(timeout=120)
        told = json.loads(out.splitlines()[-1])
        runs.append((told["painted"] - began, told["focused"] - began, told["heavy"], told["cpu"]))
    painted, focused = (round(statistics.median(run[i] for run in runs), 2) for i in (0, 1))
    return {
        "painted_s": painted, "composer_focused_s": focused, "runs": len(runs), "heavy_modules_at_paint": runs[-1][2],
        "cpu_s": round(statistics.median(run[3] for run in runs), 2),
        "reached": painted < 1.5 and focused < 2 and not runs[-1][2],
    }  # fmt: skip


def paint(folder: Path) -> Figures:
    """Of `start`: when the window was painted, and when the composer had the focus."""
    seat = Seat(folder, model="starter-chat")
    heavy: list[str] = []
    seat.hearth.painted.connect(lambda: heavy.extend(name for name in HEAVY if name in sys.modules))
    seat.show()
    seat.window.activateWindow()  # as a desktop does with a new window; there is none here
    seat.until(lambda: seat.app.focusWidget() is seat.page.composer.field)
    focused = time.time()
    seat.close()
    return {"painted": seat.painted_at, "focused": focused, "heavy": heavy, "cpu": time.process_time()}


def packets(folder: Path) -> Figures:
    """Addresses that any process of Hearth asked for in its first ten seconds, as the kernel saw them."""
    trace = folder / "trace"
    wrap = ("strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-e", "signal=none", "-o", str(trace))
    code = "import sys; from app.startup.command_line import main; sys.exit(main(['--data-dir', sys.argv[1]]))"
    process = subprocess.Popen([*wrap, sys.executable, "-c", code, str(folder / "hearth")], env=environment(folder))
    time.sleep(10)
    started = len(tree_of(process.pid))
    for part in tree_of(process.pid)[1:2]:  # the window; strace ends with it
        part.send_signal(signal.SIGTERM)
    process.wait(timeout=30)
    inet = [line for line in trace.read_text(errors="replace").splitlines() if "AF_INET" in line]
    return {"processes_seen": started, "calls_with_an_internet_address": len(inet), "first": inet[:3],
            "reached": not inet and started > 2}  # fmt: skip


def paths(folder: Path) -> Figures:
    """A start, an answer and a second start in a folder with spaces, Cyrillic, CJK, U+3000 and over 260 characters."""
    deep = folder / "My files" / "Мои модели" / "模型　フォルダ" / ("a long name " * 8).strip() / ("b" * 120)
    asked = []
    for _ in range(2):
        seat = Seat(deep, model="starter-chat", temperature=0.0, max_tokens=8).show()
        seat.ready()
        asked.append(seat.say("What is the capital of Peru?").text)
        kept = len(seat.chat.memory.conversations()) if hasattr(seat.chat, "memory") else None
        seat.close()
    return {"characters": len(str(deep)), "answers": len([text for text in asked if text.strip()]), "chats": kept,
            "reached": len(str(deep)) > 260 and all(text.strip() for text in asked)}  # fmt: skip


# --- the event loop


def busy(folder: Path) -> Figures:
    """Lateness while a model loads, then while words stream at 100 a second, with a copy hashed and a download."""
    big, out = big_model(folder), {}
    phases: tuple[tuple[str, bool], ...] = (("loading", False), ("streaming_100_tok_s", True))
    for name, fake in phases:
        place = folder / name
        with hub_process(64 << 20, 8 << 20) as url:
            os.environ.update(environment(place, HF_ENDPOINT=url, HF_HUB_OFFLINE="", NO_PROXY="*"))
            seat = Seat(place, fake=fake, model=None if fake else str(big)).show()
            library, done = seat.hearth.library, list[Any]()
            if fake:
                seat.ready()
            library.ask("import", {"path": str(big), "copy": True}, done.append)
            library.ask("download", {"repo": "maker/big-GGUF", "variant": "q8_0"})
            seat.begin_probe()
            if fake:
                seat.stream(1_000)
                seat.rest(8)
            else:
                seat.ready()
            out[name] = {**seat.lateness(), "copied_and_hashed": bool(done)}
            seat.close()
    out["reached"] = all(out[name]["p99"] < 50 and out[name]["max"] < 200 for name, _ in phases)
    return out


def send(folder: Path) -> Figures:
    """From Send to the first state word, and what was read anew of a chat that goes on."""
    seat = Seat(folder, model="starter-chat", temperature=0.0, max_tokens=24).show()
    seat.ready()
    words, reused = [], []
    for _ in range(5):
        before: dict[str, Any] | None = None
        for question in QUESTIONS:
            count = len(seat.finished)
            began = time.perf_counter()
            seat.chat.send(question)
            seat.until(lambda: seat.chat.status.answering)
            seat.page.repaint()
            words.append(1000 * (time.perf_counter() - began))
            seat.until(lambda count=count: len(seat.finished) > count)  # type: ignore[misc]
            stats = seat.finished[-1].stats
            if before is not None:
                reused.append(stats["reused_tokens"] / (before["prompt_tokens"] + before["tokens"]))
            before = stats
        seat.chat.new_chat()
    seat.close()
    return {"state_word_ms": spread(words), "reused_share": round(min(reused), 3),
            "reached": max(words) < 100 and min(reused) >= 0.95}  # fmt: skip


def stop(folder: Path) -> Figures:
    """From Stop to the kept answer, and from Stop loading to rest, with what the engine then holds."""
    from app.clients.engine_status import Phase

    seat = Seat(folder, model="starter-chat").show()
    seat.ready()
    took = []
    for number in range(8):
        count = len(seat.finished)
        seat.chat.send(QUESTIONS[number % 2])
        seat.until(lambda: seat.chat.status.phase is Phase.WRITING)
        seat.rest(0.02 * number)
        if len(seat.finished) == count:
            seat.chat.stop()
            took.append(1000 * seat.until(lambda count=count: len(seat.finished) > count))  # type: ignore[misc]
    seat.chat.unload()
    seat.until(lambda: seat.chat.status.phase is Phase.OFF)
    seat.rest(1)
    engine = tree_of(os.getpid())[1:]
    before = sum(process.memory_info().rss for process in engine)
    cancels = []
    for number in range(3):
        seat.chat.use_model(str(big_model(folder)))
        seat.until(lambda: seat.chat.status.phase is Phase.LOADING and seat.chat.status.done > 0)
        seat.rest(0.1 * number)
        seat.chat.cancel_load()
        cancels.append(seat.until(lambda: seat.chat.status.phase is Phase.OFF))
    seat.rest(2)
    after = sum(process.memory_info().rss for process in engine if process.is_running())
    seat.close()
    kept = round((after - before) / 1e6)
    return {
        "stop_ms": spread(took), "cancel_load_s": spread(cancels, 2), "engine_before_mb": round(before / 1e6),
        "kept_2_s_later_mb": kept, "reached": max(took) < 200 and max(cancels) < 1 and kept < 50,
    }  # fmt: skip


# --- kill -9


def kill_streaming(folder: Path) -> Figures:
    """kill -9 in the middle of an answer of 100 words a second: how old the last word is that the file still has."""
    from app.chat.store.store import Store
    from app.startup.bootstrap import folders_in

    lost = []
    for run in range(5):
        place = folder / str(run)
        process = child("streams", place)
        assert process.stdout is not None
        seen: list[tuple[float, int]] = []
        for line in process.stdout:
            seen.append((time.time(), int(line)))
            if len(seen) > 1 and seen[-1][0] - seen[0][0] > 1.3 + 0.37 * run:
                break
        process.kill()
        killed = time.time()
        process.wait()
        store, _ = Store.rescue(folders_in(place).chats_file)
        chat = store.conversations()[0].id
        kept = len(store.messages(chat)[-1].text.split())
        store.close()
        newest = max((at for at, words in seen if words <= kept), default=seen[0][0])
        lost.append(killed - newest)
    return {"lost_s": spread(lost, 2), "reached": max(lost) <= 1.0}


def streams(folder: Path) -> Figures:
    """Of `kill_streaming`: says how many words the window has, until it is killed."""
    seat = Seat(folder, fake=True).show()
    seat.ready()
    words = [0]

    def grew(_: str, text: str) -> None:
        words[0] += len(text.split())
        print(words[0], flush=True)

    seat.chat.text_appended.connect(grew)
    seat.stream(3_000)
    seat.rest(60)
    return {}


def kill_download(folder: Path) -> Figures:
    """kill -9 of the library in the middle of a download, twice: bytes that came a second time."""
    from fakes.hub import FakeHub

    from engine.library.owned.installed import Library

    n_bytes, again = 48 << 20, []
    with FakeHub(bytes_per_s=12 << 20) as hub:
        data = b"GGUF" + os.urandom(n_bytes - 4)
        hub.add("maker/big-GGUF", {"big-q8_0.gguf": data})
        os.environ.update(environment(folder, **hub.environment(folder)))
        seat = Seat(folder, fake=True)
        pids: list[int] = []
        seat.hearth.library.started.connect(pids.append)  # type: ignore[attr-defined]
        seat.show()
        seat.ready()
        seat.hearth.library.ask("download", {"repo": "maker/big-GGUF", "variant": "q8_0"})
        for part in (0.3, 0.6):
            seat.until(lambda part=part: hub.sent_bytes("big-q8_0.gguf") > part * n_bytes)  # type: ignore[misc]
            known = len(pids)
            os.kill(pids[-1], signal.SIGKILL)
            seat.until(lambda known=known: len(pids) > known)  # type: ignore[misc]
        shelf = Library(folder / "data" / "Hearth" / "models")
        seat.until(lambda: hub.sent_bytes("big-q8_0.gguf") >= n_bytes and any(shelf.models()))
        seat.rest(3)
        again.append(hub.sent_bytes("big-q8_0.gguf") - n_bytes)
        gets = len(hub.of_file("big-q8_0.gguf"))
        seat.close()
    most = 2 * (8 << 20)
    return {"kills": 2, "bytes": n_bytes, "fetched_again_bytes": again[0], "requests": gets,
            "reached": 0 <= again[0] <= most}  # fmt: skip


# --- long chats


def _open(seat: Seat, chat: str) -> float:
    began = time.perf_counter()
    seat.chat.open(chat)
    seat.until(lambda: bool(seat.page.transcript.views) and seat.chat.open_conversation == chat)
    seat.page.repaint()
    return time.perf_counter() - began


def long_chat(folder: Path) -> Figures:
    """A chat of 10,000 messages: opened, scrolled through, and the theme changed while it is there."""
    from PySide6.QtCore import QPoint, QPointF, Qt
    from PySide6.QtGui import QWheelEvent

    from app.ui.look import theme

    fill_chats(folder, 200)
    chat = fill_long_chat(folder, LONG)
    seat = Seat(folder, fake=True).show()
    seat.ready()
    opened = []
    for _ in range(3):
        seat.chat.new_chat()
        seat.rest(0.2)
        opened.append(_open(seat, chat))
    seat.rest(1)
    view, frames, used = seat.page.transcript.viewport(), list[float](), list[float]()
    at = QPointF(view.rect().center())
    for _ in range(300):
        began, before = time.perf_counter(), time.process_time()
        wheel = QWheelEvent(at, view.mapToGlobal(at), QPoint(0, 0), QPoint(0, 240), Qt.MouseButton.NoButton,
                            Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False)  # fmt: skip
        seat.app.sendEvent(view, wheel)
        seat.app.processEvents()
        frames.append(1000 * (time.perf_counter() - began))
        used.append(1000 * (time.process_time() - before))
    switches = {}
    for name, looks in (("theme", [("dark", 1.0), ("light", 1.0)] * 3), ("zoom", [("light", 1.1), ("light", 1.0)] * 3)):
        turns = []
        for look, zoom in looks:
            turns.append(_longest_turn(seat, partial(theme.apply, seat.app, look, zoom, in_turns=True)))
        switches[f"{name}_longest_turn_cpu_ms"] = spread(turns, 0)
    seat.close()
    middle = sorted(opened)[1]
    return {
        "messages": LONG, "opened_s": spread(opened, 2), "scroll_frame_ms": spread(frames),
        "scroll_frame_cpu_ms": spread(used), **switches,
        "reached": middle < 1 and sorted(frames)[150] < 16 and sorted(frames)[296] < 50
        and max(one["p50"] for one in switches.values()) < 50,
    }  # fmt: skip


def _longest_turn(seat: Seat, act: Callable[[], None]) -> float:
    """The most CPU time of one turn of the event loop, in ms, from an act of the user until the window rests."""
    from PySide6.QtCore import QTimer

    turns, last, beat = list[float](), time.thread_time(), QTimer(interval=0)

    def turn() -> None:
        nonlocal last
        now = time.thread_time()
        turns.append(1000 * (now - last))
        last = now

    beat.timeout.connect(turn)
    beat.start()
    QTimer.singleShot(30, act)
    seat.rest(1)
    beat.stop()
    return max(turns)


def diagrams(folder: Path) -> Figures:
    """Mermaid: the process alone and in the window, the first one with and without a process that was warmed up."""
    from diagrams.test_diagrams import KINDS

    from app.chat.store.conversation import Message, Role
    from app.diagrams import process
    from app.ui.look import theme

    def took(source: str) -> float:
        began = time.perf_counter()
        assert process._process.draw(source, vars(theme.LIGHT)) is not None
        return 1000 * (time.perf_counter() - began)

    large = "flowchart TD\n" + "".join(f" N{i // 2}[Step {i // 2}] --> N{i + 1}[Step {i + 1}]\n" for i in range(149))
    cold, warm = [], []
    for number in range(6):
        process.end()
        if number % 2:
            process.warm()
        (warm if number % 2 else cold).append(took(KINDS["flowchart"]))
    kinds = {name: statistics.median(took(source) for _ in range(5)) for name, source in KINDS.items()}
    larges = [took(large) for _ in range(5)]
    seat = Seat(folder, fake=True).show()
    seat.ready()
    seat.rest(1)
    message = Message(Role.ASSISTANT, f"```mermaid\n{large}```")
    turn = _longest_turn(seat, lambda: seat.page.add_message(message))
    seat.close()
    process.end()
    return {
        "first_ms": spread(cold), "first_warmed_up_ms": spread(warm), "kinds_ms": spread(list(kinds.values())),
        "nodes_150_ms": spread(larges), "window_longest_turn_cpu_ms": round(turn, 1),
        "reached": max(statistics.median(warm), *kinds.values(), statistics.median(larges), turn) < 50,
    }  # fmt: skip


def streaming(folder: Path) -> Figures:
    """Streaming at 100 words a second into a short chat and into one of 10,000 messages: repaints, and CPU of each."""
    from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, Qt
    from PySide6.QtGui import QWheelEvent

    class Counter(QObject):
        repaints = 0

        def eventFilter(self, watched: QObject, event: QEvent) -> bool:
            self.repaints += event.type() == QEvent.Type.UpdateRequest
            return False

    chat = fill_long_chat(folder, LONG)
    seat = Seat(folder, fake=True).show()
    counter = Counter()
    seat.window.installEventFilter(counter)  # it is asked once for everything that is to be painted anew
    seat.ready()
    out: Figures = {}
    for name in ("short", "long"):
        if name == "long":
            _open(seat, chat)
            seat.rest(2)
        else:
            seat.chat.new_chat()
        seat.stream(900)
        seat.rest(0.5)
        counter.repaints, began, used = 0, time.perf_counter(), time.process_time()
        seat.rest(5)
        wall = time.perf_counter() - began
        out[name] = {"repaints_per_s": round(counter.repaints / wall, 1),
                     "cpu_share": round((time.process_time() - used) / wall, 3)}  # fmt: skip
        if name == "long":
            view = seat.page.transcript
            at = QPointF(view.viewport().rect().center())
            wheel = QWheelEvent(at, view.mapToGlobal(at), QPoint(0, 0), QPoint(0, 120), Qt.MouseButton.NoButton,
                                Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False)  # fmt: skip
            seat.app.sendEvent(view.viewport(), wheel)
            seat.rest(0.3)
            out["follows_after_one_wheel_step"] = view.is_following
        seat.chat.stop()
        seat.ready()
    seat.close()
    ratio = out["long"]["cpu_share"] / max(out["short"]["cpu_share"], 1e-3)
    out["long_to_short"] = round(ratio, 2)
    out["reached"] = (
        max(out[name]["repaints_per_s"] for name in ("short", "long")) <= 30
        and ratio < 1.5
        and not out["follows_after_one_wheel_step"]
    )
    return out


# --- figures, rest, search


def rates(folder: Path) -> Figures:
    """The rate and the first token's time that are shown, against the engine's and against a clock in the window."""
    seat = Seat(folder, model="starter-chat", temperature=0.0).show()
    seat.ready()
    seat.say(QUESTIONS[0])
    shown_off, shown_late, ttft_off, meter_off, first = [], [], [], [], list[float]()
    seat.chat.text_appended.connect(lambda *_: first.append(time.perf_counter()))
    for question in QUESTIONS * 2:
        first.clear()
        began = time.perf_counter()
        stats = seat.say(question).stats
        seat.page.transcript.flush()
        words = _last_stat_words(seat)
        if found := re.search(r"([\d.]+)\s*tok/s", words):
            shown_off.append(abs(float(found[1]) / stats["decode_tok_s"] - 1))
        if found := re.search(r"first after ([\d.]+)\s*(ms|s)", words):
            shown_late.append(abs(float(found[1]) * (1 if found[2] == "ms" else 1000) - 1000 * stats["ttft_s"]))
        ttft_off.append(1000 * abs(first[0] - began - stats["ttft_s"]))
        used = seat.chat.status.context_used
        if used:
            meter_off.append(abs(used / stats["context_used"] - 1))
    seat.close()
    return {
        "shown_rate_off_percent": round(100 * max(shown_off), 2), "shown_ttft_off_ms": spread(shown_late),
        "first_word_in_the_window_after_that_ms": spread(ttft_off),
        "meter_off_percent": round(100 * max(meter_off), 2) if meter_off else None,
        "reached": bool(shown_off) and max(shown_off) < 0.02 and bool(shown_late) and max(shown_late) < 20
        and bool(meter_off) and max(meter_off) < 0.01,
    }  # fmt: skip


def _last_stat_words(seat: Seat) -> str:
    from app.ui.transcript.stat_line import StatLine

    lines = [line for line in seat.page.transcript.findChildren(StatLine) if line.isVisible()]
    return max(lines, key=lambda line: line.mapTo(seat.window, line.rect().topLeft()).y()).words() if lines else ""


def idle(folder: Path) -> Figures:
    """CPU of every process of Hearth with no model loaded, and whether one of them has a GPU's driver open."""
    from app.clients.engine_status import Phase

    seat = Seat(folder, model="starter-chat").show()
    seat.ready()
    seat.chat.unload()
    seat.until(lambda: seat.chat.status.phase is Phase.OFF)
    seat.rest(12)  # until the library has told what is on this PC
    before = {process.pid: cpu_s([process]) for process in tree_of(os.getpid())}
    hearths = tree_of(os.getpid())  # looked for once: that walks through every process of the machine
    share = _share_of_a_core(seat, 30, lambda: hearths)
    each = [round(cpu_s([process]) - before.get(process.pid, 0.0), 2) for process in tree_of(os.getpid())]
    drivers = [p.name() for p in tree_of(os.getpid()) if "libcuda" in Path(f"/proc/{p.pid}/maps").read_text()]
    seat.close()
    return {"share_of_a_core_percent": share, "cpu_s_of_window_and_children": each,
            "processes_with_a_gpu_driver": drivers,
            "reached": share < 0.5 and not drivers}  # fmt: skip


def _share_of_a_core(seat: Seat, seconds: float, processes: Callable[[], list[Any]]) -> float:
    before, began = cpu_s(processes()), time.perf_counter()
    seat.rest(seconds)
    return round(100 * (cpu_s(processes()) - before) / (time.perf_counter() - began), 2)


def panel(folder: Path) -> Figures:
    """What the Live page costs while it is shown, and afterwards: CPU of every process beyond that of the chat page."""
    seat = Seat(folder, model="starter-chat").show()
    seat.ready()
    if not hasattr(seat.window, "show_live"):
        seat.close()
        return {"reached": None, "why": "there is no Live page"}
    seat.rest(3)
    shares: dict[str, list[float]] = {"chat": [], "live": []}
    for _ in range(3):  # one after the other in turns: what else the machine does is in both
        for name, show in (("chat", seat.window.show_chat), ("live", seat.window.show_live)):
            show()
            seat.rest(1)
            shares[name].append(_share_of_a_core(seat, 6, lambda: tree_of(os.getpid())))
    seat.close()
    middle = {name: statistics.median(values) for name, values in shares.items()}
    return {"chat_page_percent": middle["chat"], "live_page_percent": middle["live"],
            "cost_percent": round(middle["live"] - middle["chat"], 2),
            "reached": middle["live"] - middle["chat"] < 1}  # fmt: skip


def search(folder: Path) -> Figures:
    """From a word to its hits over 5,000 chats; the pause while one types is not counted."""
    fill_chats(folder, 5_000)
    seat = Seat(folder, fake=True).show()
    seat.ready()
    took, hits = [], list[tuple[str, Any]]()
    seat.chat.search_results.connect(lambda text, found: hits.append((text, found)))
    for number in range(20):
        word = f"needle{number}" if number % 2 else "about something"
        hits.clear()
        began = time.perf_counter()
        seat.chat.search(word)
        seat.until(lambda: bool(hits))
        took.append(1000 * (time.perf_counter() - began))
    found = len(hits[-1][1] or [])
    seat.close()
    return {"chats": 5_000, "search_ms": spread(took), "hits_of_the_last": found, "reached": bool(found)}


def list_change(folder: Path) -> Figures:
    """A chat renamed, then pinned, among 5,000: until the window is painted, by the clock and by the CPU."""
    fill_chats(folder, 5_000)
    seat = Seat(folder, fake=True).show()
    seat.ready()
    seat.rest(1)
    chats = [chat.id for chat in seat.hearth.memory.conversations()]
    acts: dict[str, Callable[[int], object]] = {
        "rename": lambda n: seat.chat.rename(chats[n], f"Another name {n}"),
        "pin": lambda n: seat.hearth.folders.place(chats[20 + n], True, ""),
    }
    out: Figures = {"chats": len(chats)}
    for name, act in acts.items():
        wall, used = [], []
        for n in range(20):
            seat.rest(0.05)
            began, before = time.perf_counter(), time.process_time()
            act(n)
            seat.app.processEvents()
            wall.append(1000 * (time.perf_counter() - began))
            used.append(1000 * (time.process_time() - before))
        out[name] = {"ms": spread(wall), "cpu_ms": spread(used)}
    seat.close()
    return {**out, "reached": all(out[name]["cpu_ms"]["p50"] < 50 for name in acts)}
