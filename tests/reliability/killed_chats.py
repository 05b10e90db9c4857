"""Chats with an engine that is killed in mid-answer again and again: no answer differs after a warm restart.

    python tests/reliability/killed_chats.py FOLDER TOKENS SEED [DRAFT]

Answers are greedy, so that each is known: an answer that was killed must begin as it began before, and the first one
after a restart must be the one that is computed without any cache. That computes as a prompt what was decoded before,
and rounds it differently. So an answer may go on with another token where the logits of the two are closer than
rounding moves them: "rounding" is the largest change of such a difference between answers with the same tokens, at
least ROUNDING, and "ties" lists the differences of other tokens. AMX is not used, which rounds prompts more coarsely.
Guesses come from the text, and from the model DRAFT if it is given. Prints a JSON object after every 1,000 tokens and
in the end; "faults" must be empty.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "reliability")]

from test_suspended import Child  # noqa: E402 - found by the line above

from engine.service import protocol  # noqa: E402
from native_kernels.cpu.runtime import isa  # noqa: E402

CHATS, MOST_CONTEXT, KILLED = 3, 700, 0.15
ROUNDING = 0.6  # in 341 such answers, computed both ways: in 99 % of 3,991 places at most 0.26, in one 0.59
TEXT = (ROOT / "assets" / "calibration" / "prose.txt").read_text("utf-8")
ASKED = ("Say that again.", "Tell me a story about it.", "What is the most important part?", "Tell me more.", "Why?")


class Soak:
    def __init__(self, folder: Path, seed: int, draft: str) -> None:
        self.folder, self.draft, self.chance = folder, draft, random.Random(seed)
        self.chats: list[list[dict[str, str]]] = [[] for _ in range(CHATS)]
        self.asked = self.tokens = self.kills = self.warm = self.restored = 0
        self.guesses: dict[str, list[int]] = {}
        self.others: list[tuple[float, str]] = []  # answers that differ: by the logits of two tokens, and how
        self.rounding = ROUNDING
        if isa.available()[0].tiles:
            os.environ[isa.SWITCH] = isa.available()[1].name
        self.child = self.started()

    def started(self) -> Child:
        child = Child()
        engine = {"device": "cpu", "threads": 1, "draft": self.draft or "off"}
        child.say(protocol.StorePrompts("keep", str(self.folder / "prompts"), [str(i) for i in range(CHATS)], 1 << 30))
        child.until("finished", "keep")
        child.say(protocol.Load("load", "starter-chat", engine))
        child.until("finished", "load")
        return child

    def end(self) -> None:
        self.child.process.kill()
        self.child.process.communicate()

    def ask(self, chat: int, fresh: bool = False) -> str:
        self.asked += 1
        sampling = {"temperature": 0, "max_tokens": 100}
        id_ = f"r{self.asked}"
        name = "" if fresh else str(chat)
        self.child.say(protocol.Generate(id_, self.chats[chat], sampling, fresh=fresh, chat=name, inspect=True))
        return id_

    def answered(self, chat: int, fresh: bool = False) -> dict[str, Any]:
        id_ = self.ask(chat, fresh)
        inspected = self.child.until("inspected", id_)
        found: dict[str, Any] = self.child.until("finished", id_)["result"]
        found["rows"] = [{**row, "text": inspected["texts"][str(row["id"])]} for row in inspected["rows"]]
        self.tokens += found["tokens"]
        for source, counts in found["guesses"].items():
            self.guesses[source] = [a + b for a, b in zip(self.guesses.get(source, [0, 0]), counts, strict=True)]
        return found

    def killed(self, chat: int) -> str:
        """Kill the engine after some tokens of an answer; return their text, and start it again."""
        id_, text = self.ask(chat), ""
        for _ in range(self.chance.randrange(40)):
            message = json.loads(self.child.lines.get(timeout=120))
            if message.get("id") == id_ and message["type"] in ("finished", "failed"):
                break
            text += message["text"] if message.get("id") == id_ and message["type"] == "token" else ""
        self.end()
        self.kills += 1
        self.child = self.started()
        return text

    def apart(self, rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> float:
        """Return by how much the logits of two answers' first other tokens differ; 0 for the same answer."""
        for row, other in zip(rows, others, strict=False):
            if row["id"] != other["id"]:
                return max(gap(row, other["id"]), gap(other, row["id"]))
            rival = max((p, id_) for id_, p in row["top"] if id_ != row["id"])[1]
            if (first := gap(row, rival)) < 2 and (second := gap(other, rival)) < 2:
                self.rounding = max(self.rounding, abs(first - second))
        return 0.0 if len(rows) == len(others) else math.inf

    def turn(self) -> None:
        chat = self.chance.randrange(CHATS)
        messages = self.chats[chat]
        if not messages:
            at = self.chance.randrange(len(TEXT) - 1500)
            messages.append({"role": "user", "content": TEXT[at : at + 1500]})
        else:
            messages.append({"role": "user", "content": self.chance.choice(ASKED)})
        before = self.killed(chat) if (is_killed := self.chance.random() < KILLED) else ""
        result = self.answered(chat)
        if is_killed:
            self.warm += result["restored_tokens"] > 0
            self.restored += result["restored_tokens"]
            wanted = self.answered(chat, fresh=True)
            for apart, told in (
                (goes_on(before, result["rows"]), f"killed after {before!r}, then {result['text']!r}"),
                (self.apart(result["rows"], wanted["rows"]), f"{result['text']!r} instead of {wanted['text']!r}"),
            ):
                self.others += [(apart, told)] if apart else []
        messages.append({"role": "assistant", "content": result["text"]})
        if result["context_used"] > MOST_CONTEXT:
            messages.clear()
        time.sleep(self.chance.choice((0.0, 0.0, 0.3)))  # the engine keeps prompts while it is idle


def goes_on(before: str, rows: list[dict[str, Any]]) -> float:
    """Return the same for a text that ended early, whose token is taken to be the second most probable.

    It may begin with the token chosen ("them", "the"), so the row before counts too.
    """
    said = ""
    for i, row in enumerate(rows):
        said += row["text"]
        if not said.lstrip().startswith(before.lstrip()[: len(said.lstrip())]):
            near = rows[max(0, i - 1) : i + 1]
            return min(gap(one, max((p, id_) for id_, p in one["top"] if id_ != one["id"])[1]) for one in near)
    return 0.0


def gap(row: dict[str, Any], id_: int) -> float:
    """Return by how much the logit of the token is below that of the token chosen."""
    return math.log(row["p"] / max(dict(row["top"]).get(id_, 0.0), 1e-6))


def main(folder: Path, tokens: int, seed: int, draft: str = "") -> dict[str, Any]:
    began, soak = time.monotonic(), Soak(folder, seed, draft)
    try:
        while soak.tokens < tokens:
            thousands = soak.tokens // 1000
            soak.turn()
            if soak.tokens // 1000 > thousands:
                print(json.dumps(figures(soak, began)), flush=True)
    finally:
        soak.end()
    return figures(soak, began)


def figures(soak: Soak, began: float) -> dict[str, Any]:
    return {
        "tokens": soak.tokens, "answers": soak.asked - soak.kills, "kills": soak.kills, "warm restarts": soak.warm,
        "tokens read from disk": soak.restored, "guessed and accepted": soak.guesses,
        "rounding": round(soak.rounding, 4),
        "ties": [round(apart, 4) for apart, _ in soak.others if apart <= soak.rounding],
        "faults": [told for apart, told in soak.others if apart > soak.rounding],
        "seconds": round(time.monotonic() - began), "load_average": round(os.getloadavg()[0], 1),
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])), flush=True)
