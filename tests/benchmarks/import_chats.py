"""Import a large generated export into a new chats file: time, and the longest pause of the window's event loop.

    python tests/benchmarks/import_chats.py [--gb 2] [--record]

The export has ChatGPT's format: chats of 40 messages with 100 to 400 words each. It is written to the temporary folder
first, which needs three times its size.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QCoreApplication, QTimer  # noqa: E402

from app.chat.chat_memory import ChatMemory  # noqa: E402 - found by the line above
from app.chat.imports.chat_import import ChatImport, ImportSummary  # noqa: E402
from app.chat.store.operations import Operations  # noqa: E402
from app.chat.store.store import Store  # noqa: E402
from engine.machine.hardware import describe, probe  # noqa: E402

MESSAGES, TICK_S = 40, 0.01


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=2.0)
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    today = datetime.datetime.now().astimezone().date().isoformat()
    with tempfile.TemporaryDirectory() as folder:
        export = Path(folder, "conversations.json")
        generate(export, int(flags.gb * 1e9))
        found = {"date": today, "hardware": describe(probe()), "bytes": export.stat().st_size, **imported(export)}
    print(json.dumps(found, indent=1))
    if flags.record:
        file = Path(__file__).parent / "results" / f"import-chats-{today}.json"
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def generate(to: Path, n_bytes: int) -> None:
    """Write the export."""
    rng = random.Random(1)
    words = [("".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 10)))) for _ in range(20_000)]
    with to.open("w", encoding="utf-8") as file:
        number = 0
        while file.tell() < n_bytes:
            nodes: dict[str, object] = {"root": {"id": "root", "message": None, "parent": None, "children": ["0"]}}
            for i in range(MESSAGES):
                at = rng.randrange(len(words) - 400)
                text = " ".join(words[at : at + rng.randrange(100, 400)])
                nodes[str(i)] = {
                    "id": str(i), "parent": str(i - 1) if i else "root", "children": [str(i + 1)][: MESSAGES - 1 - i],
                    "message": {
                        "id": f"{number}-{i}", "author": {"role": ("user", "assistant")[i % 2]}, "recipient": "all",
                        "create_time": 1.7e9 + number * MESSAGES + i, "metadata": {"model_slug": "gpt-4o"},
                        "content": {"content_type": "text", "parts": [text]},
                    },
                }  # fmt: skip
            chat = {"title": f"Chat {number}", "create_time": 1.7e9, "update_time": 1.7e9, "id": f"c{number}",
                    "conversation_id": f"c{number}", "current_node": str(MESSAGES - 1), "mapping": nodes}  # fmt: skip
            file.write(("," if number else "[") + json.dumps(chat))
            number += 1
        file.write("]")


def imported(export: Path) -> dict[str, object]:
    """Import it beside a timer of 10 ms, whose longest delay is the longest pause."""
    app = QCoreApplication([])
    saves, reads, found = Operations(), Operations(), dict[str, object]()
    memory = ChatMemory(lambda: Store.rescue(export.with_name("chats.db")), saves, reads)
    import_, timer = ChatImport(memory), QTimer(interval=round(1000 * TICK_S))
    last, longest, began = 0.0, 0.0, 0.0

    def tick() -> None:
        nonlocal last, longest
        now = time.perf_counter()
        longest, last = max(longest, now - last - TICK_S), now

    def begin() -> None:
        nonlocal began, last
        began = last = time.perf_counter()
        timer.start()
        import_.start([export])

    def done(summary: ImportSummary) -> None:
        found.update(seconds=round(time.perf_counter() - began, 1), chats=len(summary.chats))
        app.quit()

    timer.timeout.connect(tick)
    import_.done.connect(done)
    import_.failed.connect(lambda error: app.exit(1))
    memory.opened.connect(begin)
    memory.open()
    if app.exec():
        raise SystemExit("The import failed.")
    for operations in (saves, reads):
        operations.close()
    cpu_s = [resource.getrusage(who).ru_utime for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {**found, "longest_pause_ms": round(1000 * longest), "reader_cpu_s": round(cpu_s[1], 1)}


if __name__ == "__main__":
    sys.exit(main())
