"""Chats with an engine that is killed in mid-answer again and again: no answer differs after a warm restart, by a bit.

    python tests/reliability/killed_chats.py FOLDER TOKENS SEED [MODEL] [KV_CODEC] [DRAFT]

Another engine, which is never killed, repeats every forward pass (replayed_passes.py). All logits, stored blocks and
restored caches must be equal to the bit, and greedy answers those that it chooses, the beginnings of killed ones
included. Some engines are closed instead. MODEL: "recurrent" and "windows" are tiny random models, made here, for which
guesses are always computed; default: the starter. Guesses come from the text, and from the model DRAFT if it is given.
Prints a JSON object after every 1,000 tokens and in the end; "faults" must be empty.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "reliability")]

from replayed_passes import Replay  # noqa: E402 - found by the line above
from samples.recurrent_model import make_recurrent_model  # noqa: E402
from samples.tiny_model import make_tiny_model  # noqa: E402
from test_suspended import Child  # noqa: E402

from engine.config import EngineConfig  # noqa: E402
from engine.service import protocol  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402

CHATS, KILLED, CLOSED = 3, 0.15, 0.05
TEXT = (ROOT / "assets" / "calibration" / "prose.txt").read_text("utf-8")
ASKED = ("Say that again.", "Tell me a story about it.", "What is the most important part?", "Tell me more.", "Why?")
WINDOWS = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 70,
           "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}  # fmt: skip


class Soak:
    def __init__(self, folder: Path, seed: int, model: str, codec: str, draft: str) -> None:
        self.folder, self.model, self.chance = folder, model, random.Random(seed)
        if model == "recurrent":
            self.model = str(make_recurrent_model(folder / model, drafts="random"))
        elif model == "windows":
            self.model = str(make_tiny_model(folder / model, n_layers=3, max_context=2048, config=WINDOWS))
        self.engine = {"device": "cpu", "threads": 1, "kv_cache": codec, "draft": draft}
        loaded = LoadedModel.load(self.model, EngineConfig("cpu", 1, kv_cache=codec, draft="off"))  # type: ignore[arg-type]
        self.replay, self.tokenizer = Replay(loaded), loaded.tokenizer
        self.is_tiny = self.model != model  # nearly each letter is a token
        self.most, self.begun = (loaded.context // 2, loaded.context // 4) if self.is_tiny else (700, 1500)
        self.chats: list[list[dict[str, str]]] = [[] for _ in range(CHATS)]
        self.asked = self.tokens = self.kills = self.closed = self.warm = 0
        self.guesses: dict[str, list[int]] = {}
        self.child = self.started()

    def started(self) -> Child:
        self.journal, self.read = self.folder / f"journal-{self.kills}-{self.closed}", 0
        program = Path(__file__).with_name("replayed_passes.py")
        child = Child(str(program), str(self.journal), *["eager"] * self.is_tiny)
        child.say(protocol.StorePrompts("keep", str(self.folder / "prompts"), [str(i) for i in range(CHATS)], 1 << 30))
        child.until("finished", "keep")
        child.say(protocol.Load("load", self.model, self.engine))
        child.until("finished", "load")
        return child

    def end(self) -> None:
        self.child.process.kill()
        self.child.process.communicate()
        self.follow()

    def follow(self) -> None:
        """Repeat what the engine has recorded since; a kill may leave a part of a line."""
        *lines, _ = self.journal.read_bytes()[self.read :].split(b"\n")
        self.read += sum(len(line) + 1 for line in lines)
        self.replay.go_on(lines)

    def ask(self, chat: int) -> str:
        self.asked += 1
        id_, sampling = f"r{self.asked}", {"temperature": 0, "max_tokens": 100}
        self.child.say(protocol.Generate(id_, self.chats[chat], sampling, chat=str(chat)))
        return id_

    def answered(self, chat: int) -> dict[str, Any]:
        found: dict[str, Any] = self.child.until("finished", self.ask(chat))["result"]
        self.follow()
        wanted = self.chosen(self.replay.best, found["prompt_tokens"], found["tokens"])
        self.replay.expect_equal(found["text"], wanted, "an answer")
        self.tokens += found["tokens"]
        for source, counts in found["guesses"].items():
            self.guesses[source] = [a + b for a, b in zip(self.guesses.get(source, [0, 0]), counts, strict=True)]
        return found

    def chosen(self, best: dict[int, int], n_prompt: int, n_tokens: int) -> str:
        """Return the first tokens of an answer as the unkilled engine chooses them."""
        stream = self.tokenizer.stream()
        begun = "".join(stream.push(best[n_prompt - 1 + i]) for i in range(n_tokens))
        return begun + stream.flush()

    def killed(self, chat: int) -> tuple[str, int, dict[int, int]]:
        """Kill the engine in an answer, and start it again; return text and number of its tokens, and `Replay.best`."""
        id_, text, n_tokens = self.ask(chat), "", 0
        for _ in range(self.chance.randrange(40)):
            message = json.loads(self.child.lines.get(timeout=120))
            if message.get("id") == id_ and message["type"] in ("finished", "failed"):
                break
            if message.get("id") == id_ and message["type"] == "token":
                text, n_tokens = text + message["text"], message["tokens"]
        self.end()
        self.kills += 1
        self.child = self.started()
        return text, n_tokens, dict(self.replay.best)

    def close(self) -> None:
        self.child.say(protocol.Shutdown("end"))
        self.child.process.wait(120)
        self.end()
        self.closed += 1
        self.child = self.started()

    def turn(self) -> None:
        chat = self.chance.randrange(CHATS)
        messages, at = self.chats[chat], self.chance.randrange(len(TEXT) - self.begun)
        said = self.chance.choice(ASKED) if messages else TEXT[at : at + self.begun]
        messages.append({"role": "user", "content": said})
        before, closed = None, self.closed
        if self.chance.random() < KILLED:
            before = self.killed(chat)
        elif self.chance.random() < CLOSED:
            self.close()
        result = self.answered(chat)
        if before is not None:
            wanted = self.chosen(before[2], result["prompt_tokens"], before[1])
            self.replay.expect_equal(before[0], wanted[: len(before[0])], "an answer that was killed")
        self.warm += (before is not None or self.closed > closed) and result["restored_tokens"] > 0
        messages.append({"role": "assistant", "content": result["text"]})
        if result["context_used"] > self.most:
            messages.clear()
        time.sleep(self.chance.choice((0.0, 0.0, 0.3)))  # the engine keeps prompts while it is idle


def main(
    folder: str, tokens: str, seed: str, model: str = "starter-chat", codec: str = "f16", draft: str = "off"
) -> dict[str, Any]:
    began, soak = time.monotonic(), Soak(Path(folder), int(seed), model, codec, draft)
    try:
        while soak.tokens < int(tokens):
            thousands = soak.tokens // 1000
            soak.turn()
            if soak.tokens // 1000 > thousands:
                print(json.dumps(figures(soak, began)), flush=True)
    finally:
        soak.end()
    return figures(soak, began)


def figures(soak: Soak, began: float) -> dict[str, Any]:
    return {
        "tokens": soak.tokens, "answers": soak.asked - soak.kills, "kills": soak.kills, "closed": soak.closed,
        "warm restarts": soak.warm, "tokens read from disk": soak.replay.restored,
        "guessed and accepted": soak.guesses, "logits compared": soak.replay.rows, "faults": soak.replay.faults,
        "seconds": round(time.monotonic() - began),
        "load_average": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])), flush=True)
