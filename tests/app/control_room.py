"""The whole window with a fake for the engine and one for the library, for walks through everything in it.

One room serves many walks: `reset` brings it back to the open chat. What can be opened is listed in
places_of_chats.py and places_beside_chats.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from control_walk import come_to_rest, settle
from fake_library import GB, PIP, FakeLibrary, installed
from person import Person
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QMenu, QWidget
from pytestqt.qtbot import QtBot

from app.chat.store.conversation import Conversation, Message, Role
from app.chat.store.store import Store
from app.settings import AppSettings
from app.startup.bootstrap import folders_in
from app.tools.tool_offer import ToolOffer
from app.ui.composer.documents_button import DocumentsOffer
from app.ui.widgets.floating import Toast
from app.ui.widgets.popover import Popover
from engine.library.records import Download

FIRST = (1280, 832)
NARROW = (900, 600)
ANSWER = """Here is a table, and more of everything.

| Model | Rate | Where |
| --- | --- | --- |
| Pip | 310 tok/s | CPU |
| Bamboo | 39.1 tok/s | GPU + CPU |

1. A list with `inline code` and a [link](https://example.com)
2. **Strong** words, שלום, مرحبا and 你好

> A quote that goes on for a while, so that it has to wrap somewhere in the middle of the column.

```python
def answer(question: str) -> str:
    return "a line that is longer than the column of the transcript is wide, so that it scrolls inside of its block"
```

The end."""
STATS = {
    "finish_reason": "stop", "context_full": False, "prompt_tokens": 20, "reused_tokens": 4, "tokens": 120,
    "dropped_messages": 0, "context_used": 140, "context_total": 4096, "total_s": 3.2, "ttft_s": 0.12,
    "prefill_tok_s": 812.0, "decode_tok_s": 39.1, "gpu_neuron_load": 0.83, "active_share": 0.1, "fired_share": 0.1,
    "vram_bytes": 9_400_000_000, "ram_bytes": 3_600_000_000, "mode": "sparse", "model": "Bamboo DPO 7B",
    "device": "cuda", "device_reason": "",
}  # fmt: skip
T = TypeVar("T", bound=QWidget)


def busy_library() -> FakeLibrary:
    """Models of every state: in use, installed, on its way, too big, not Hearth's own."""
    library = FakeLibrary(0)
    library.models = [
        PIP,
        installed("Bamboo DPO 7B", id="PowerInfer/b", catalogue_id="bamboo-dpo-7b", measured_tok_s=39.1),
        installed("A model of mine with a name that has no end", id="local/mine", owned=False, origin="in place"),
    ]
    library.downloads = [
        Download("d1", "PowerInfer/t", "TurboSparse Mistral 7B", "PowerInfer/t", "paused", int(1.9 * GB),
                 int(4.3 * GB), 38e6, 63.0, "m.gguf", "turbosparse-mistral-7b"),
    ]  # fmt: skip
    return library


class Room(Person):
    """A window full of chats and models."""

    def __init__(self, qtbot: QtBot, folder: Path) -> None:
        self.talk = self._fill(folder)
        settings = AppSettings(theme="light", last_conversation=self.talk.id)
        super().__init__(qtbot, folder, "in-thread", "fake-gpu", settings, busy_library())
        self.wait_ready()
        self.wait(lambda: self.hearth.controller.open_conversation == self.talk.id)
        self.hearth.models.refresh()
        self.wait(lambda: self.hearth.models.rows)
        self.reset()

    @staticmethod
    def _fill(folder: Path) -> Conversation:
        store, _ = Store.rescue(folders_in(folder).chats_file)
        day = 24 * 3600
        for n in range(30):
            title = "日本語と한국어 and a title that is longer than any sidebar is wide" if n % 5 == 0 else f"Chat {n}"
            folder = "Notizen und Zusammenfassungen" if n % 7 == 3 else "Work" if n % 7 == 4 else ""
            at = time.time() - (n + 1) * day
            store.save_conversation(Conversation(title=title, updated_at=at, pinned=n in (1, 5), folder=folder))
        talk = Conversation(title="Everything that an answer can hold")
        store.save_conversation(talk)
        for _ in range(2):
            store.append(talk.id, Message(Role.USER, "Show me everything that you can."))
            store.append(talk.id, Message(Role.ASSISTANT, ANSWER, stats=STATS))
        store.close()
        return talk

    # --- going to places

    def reset(self, size: tuple[int, int] = FIRST) -> None:
        """Close what is open above the window, and show the chat."""
        for widget in QApplication.topLevelWidgets():
            if isinstance(widget, QDialog | QMenu) and widget.isVisible():
                widget.close()
        for popover in self.window.findChildren(Popover):
            popover.dismiss()
        self.page.clear_banner()
        self.hearth.servers.choose(None)
        for server in self.hearth.servers.book.servers:
            self.hearth.servers.remove(server.id)
        for toast in self.window.findChildren(Toast):
            toast.deleteLater()
        self.page.composer.next.show_message(None)
        self.page.show_over(None)
        self.page.composer.set_text("")
        self.page.composer.set_tools(ToolOffer())
        self.page.composer.documents_button.show_offer(DocumentsOffer())
        self.page.close_find()
        for item in list(self.page.composer.draft.items):
            self.page.composer.draft.remove(item.id)
        self.window.resize(*size)
        glides = self.window.sidebar.width() < 200 and size != NARROW
        self.window.sidebar.set_collapsed(False)
        self.window.sidebar.panel.close_search()
        if self.hearth.controller.open_conversation != self.talk.id:
            self.hearth.controller.open(self.talk.id)
            self.wait(lambda: self.hearth.controller.open_conversation == self.talk.id)
        self.window.show_chat()
        QTest.qWait(20)
        if glides:
            come_to_rest(self.window)

    def new_chat(self) -> QWidget:
        self.hearth.controller.new_chat()
        settle()
        return self.window

    def models(self) -> QWidget:
        self.window.show_models()
        page = self.window.pages.models_page
        assert page is not None
        self.wait(lambda: page.rows)
        page.search.clear()
        page.filters.pick("all")
        settle()
        return self.window

    def act(self, row_id: str, act: str) -> QDialog:
        """What opens when that is asked of a model."""
        self.models()
        assert self.window.pages.model_actions is not None
        self.window.pages.model_actions.act(row_id, act)
        return self.on_top(QDialog)

    def on_top(self, kind: type[T]) -> T:
        """The dialog or menu that has just been opened."""
        settle()
        found = [w for w in QApplication.topLevelWidgets() if isinstance(w, kind) and w.isVisible()]
        assert found, f"no {kind.__name__} is open"
        return found[-1]

    def opened(self, act: Callable[[], Any], kind: type[T] = QDialog) -> T:  # type: ignore[assignment]
        """Do something that opens a dialog or a menu; what it opened."""
        act()
        return self.on_top(kind)

    def popover(self, kind: type[Popover], act: Callable[[], object]) -> QWidget:
        """Do something that opens a popover; what it opened."""
        act()
        settle()
        return next(found for found in self.window.findChildren(kind) if found.is_open)
