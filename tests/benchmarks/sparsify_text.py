"""The text of sparsify_small.py: prompts for a model, and the texts that the model writes."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sparsify_model import Llama, Tensor, last_norm, linear, norm, rotate, say, wait
from torch.nn import functional

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from engine.formats.gguf import open_gguf  # noqa: E402 - found by the line above

if TYPE_CHECKING:
    from sparsify_training import Settings

MOST_SCRIPT = 512  # tokens
MODEL_WRITES = -1  # in a script of tokens: the model writes until it ends its turn
SUBJECTS = """
the moon; volcanoes; honey bees; bread; the Roman Empire; electric cars; chess; the violin; photosynthesis; gravity;
black holes; the Silk Road; tea; coffee; the human heart; sleep; dreams; vaccines; whales; penguins; dinosaurs; rivers;
deserts; glaciers; earthquakes; lightning; rainbows; the internet; computers; robots; programming; Python; databases;
prime numbers; fractions; probability; triangles; money; banks; inflation; taxes; elections; democracy; the Vikings;
the French Revolution; Ancient Egypt; castles; bridges; trains; ships; bicycles; aeroplanes; space travel; Mars;
telescopes; microscopes; atoms; electricity; magnets; batteries; solar power; recycling; forests; gardening; tomatoes;
roses; cats; dogs; horses; elephants; spiders; ants; birds; sharks; football; tennis; swimming; running; yoga; stress;
friendship; love; honesty; courage; patience; school; homework; exams; job interviews; e-mails; meetings; teamwork;
leadership; painting; poetry; novels; theatre; films; jazz; guitars; dancing; cooking; pizza; soup; chocolate; apples;
cheese; breakfast; holidays; mountains; islands; London; Paris; Tokyo; India; Brazil; Africa; winter; summer; clouds;
climate change; the ocean; time; history; language; grammar; spelling; Spanish; philosophy; logic; ethics; memory;
the brain; medicine; first aid; water; salt; gold; iron; glass; paper; plastic; clocks; maps; museums; libraries;
a lost key; an old house; a brave mouse; a talking tree; a small village; a birthday party; a long journey; two sisters
"""
REQUESTS = """
What is {}?; What are the most important facts about {}?; Explain {} to a child.; Explain {} in simple words.;
Tell me about {}.; Tell me a short story about {}.; Write a poem about {}.; Write a short paragraph about {}.;
Give me five facts about {}.; List three advantages and three disadvantages of {}.; Why is {} important?;
How does {} work?; What is the history of {}?; What should I know about {} before I begin?; Write a joke about {}.;
Write a letter to a friend about {}.; Write an e-mail to my boss about {}.; Make a quiz with answers about {}.;
What are common mistakes with {}?; Compare {} with something similar.; Give me ideas for a school project about {}.;
Write a dialogue between two people about {}.; Summarize what is known about {}.; What is your opinion of {}?;
Write a title and an outline of an article about {}.; What questions do people ask about {}?; Invent a game about {}.;
Describe {} with all senses.; How has {} changed over the last hundred years?; Write a news article about {}.;
How can I learn more about {}?; Write a blog post about {}.; Write a Python function that has to do with {}.;
Name ten words that belong to {}.; Teach me {} step by step.; I am curious about {}. Where do I start?;
Write a speech about {}.; Rewrite this sentence more politely: I do not want to hear about {} again.
"""
_FOLLOW_UPS = """
Can you explain that again?; Thank you! Tell me more.; Give me an example.; Why?; Make it shorter.; Make it longer.;
Are you sure?; Summarize that in one sentence.; What else should I know?; Now write it as a list.; How do you know?;
Say it in other words.; I did not understand the last part.; What would happen otherwise?; And what about children?
"""
_BEGINNINGS = """
The history of {} begins; In this article, we will look at {}; # About {}\\n\\n; Once upon a time, there was;
Introduction to {}\\n\\n; Many people think that {}; A study of {} found that; "It is about {}," she said,; def ;
Chapter 1: About {}\\n\\n; Question: What is {}?\\nAnswer:; When I first heard of {},; Lesson plan: {}\\n\\n;
The most common question about {} is; import numpy as np\\n; He looked at; Yesterday; The; In 19; This is; I; A
"""
_CALIBRATION = ("questions", "dialogue", "prose", "encyclopedia", "code", "tables", "languages")


def listed(text: str) -> list[str]:
    return [one.strip(" ").replace("\\n", "\n") for one in text.strip().replace(";\n", "; ").split("; ")]


class ScriptWriter:
    """Draws scripts: token ids that are given, with MODEL_WRITES where the model writes until it ends its turn."""

    def __init__(self, tokenizer: Any, seed: int) -> None:
        self._tokenizer, self._draw = tokenizer, random.Random(seed)
        self._subjects, self._requests = listed(SUBJECTS), listed(REQUESTS)
        self._follow_ups, self._beginnings = listed(_FOLLOW_UPS), listed(_BEGINNINGS)
        folder = ROOT / "assets" / "calibration"
        shipped = [
            (folder / f"{name}.txt").read_text(encoding="utf-8").rstrip().split("\n---\n") for name in _CALIBRATION
        ]
        self._messages, self._texts = ([one for some in part for one in some] for part in (shipped[:2], shipped[2:]))

    def script(self) -> list[int]:
        return self._chat() if self._draw.random() < 0.75 else self._text()

    def _about(self, templates: list[str]) -> str:
        made = self._draw.choice(templates).format(self._draw.choice(self._subjects))
        return made[:1].upper() + made[1:]

    def _chat(self) -> list[int]:
        found: list[int] = []
        for number in range(6):
            message = self._about(self._requests)
            if number and self._draw.random() < 0.5:
                message = self._draw.choice(self._follow_ups)
            elif self._draw.random() < 0.15:
                message = self._draw.choice(self._messages)
            ids = self._tokenizer.encode_chat([{"role": "user", "content": message}])
            if number:  # without the system message, after the end of the turn before
                starts = [at for at, token in enumerate(ids) if token == ids[0]]
                ids = self._tokenizer.encode("\n") + ids[starts[-2] :]
            found += [*ids, MODEL_WRITES]
        return found

    def _text(self) -> list[int]:
        found = self._tokenizer.encode("<|endoftext|>", special=True)
        for _ in range(6):
            kind = self._draw.random()
            begin = (
                self._about(self._beginnings) if kind < 0.4 else self._draw.choice(self._texts) if kind < 0.6 else ""
            )
            found += [*self._tokenizer.encode(begin)[:100], MODEL_WRITES]
        return found


def prepare(path: Path, tokens: Path, texts: list[Path], n: int) -> None:
    from engine.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_gguf(open_gguf(path).metadata)
    writer = ScriptWriter(tokenizer, seed=0)
    scripts = [writer.script()[:MOST_SCRIPT] for _ in range(n)]
    found = {
        "scripts": np.full((n, MOST_SCRIPT), MODEL_WRITES, np.int32),
        "stops": np.array(
            sorted(tokenizer.stop_token_ids | set(tokenizer.encode("<|endoftext|>", special=True))), np.int32
        ),
    }
    for row, script in zip(found["scripts"], scripts, strict=True):
        row[: len(script)] = script
    for text in texts:
        found[f"text {text.stem}"] = np.array(tokenizer.encode(text.read_text(encoding="utf-8")), np.int32)
    pages = [one.read_text(encoding="utf-8") for one in sorted((ROOT / "docs").glob("*.md"))]
    found["text docs"] = np.array(tokenizer.encode("\n\n".join(pages)), np.int32)
    np.savez_compressed(tokens, **found)
    print({name: one.shape for name, one in found.items()})


class Writer:
    """Writes many texts at once. All are at the same position, so attention needs no mask."""

    def __init__(
        self, model: Llama, batch: int, length: int, activation: Callable[[Tensor], Tensor] = functional.silu
    ) -> None:
        self._model, self._batch, self._length, self._activation = model, batch, length, activation
        as_one = lambda i, *names: torch.cat([model.weights[f"blk.{i}.{name}.weight"] for name in names])  # noqa: E731
        self._layers = [
            [one.to(model.dtype) for one in (as_one(i, "attn_q", "attn_k", "attn_v"), as_one(i, "attn_output"),
                                             as_one(i, "ffn_gate", "ffn_up"), as_one(i, "ffn_down"))]
            for i in range(model.n_layers)
        ]  # fmt: skip
        self._head = model.head.to(model.dtype)
        self._cos, self._sin = model.rotations(length)
        width = 2 * self._cos.shape[1]
        shape = (model.n_layers, 2, batch, model.n_kv_heads, length, width)
        self._cache = torch.empty(shape, device=model.device, dtype=model.dtype)

    @torch.no_grad()
    def write(self, scripts: Tensor, stops: Tensor) -> Tensor:
        """Scripts [batch, S] to texts [batch, length]; every second one at temperature 0.8."""
        device = self._model.device
        temperature = torch.where(torch.arange(self._batch, device=device) % 2 == 0, 1.0, 0.8)[:, None]
        written = torch.empty((self._batch, self._length), dtype=torch.int64, device=device)
        at = torch.zeros((self._batch, 1), dtype=torch.int64, device=device)
        drawn = torch.zeros((self._batch, 1), dtype=torch.int64, device=device)
        for position in range(self._length):
            given = scripts.gather(1, at.clamp(max=scripts.shape[1] - 1))
            writes = given == MODEL_WRITES
            tokens = torch.where(writes, drawn, given)
            written[:, position] = tokens[:, 0]
            at += ~writes | torch.isin(tokens, stops)
            if position + 1 < self._length:
                p = (self._logits(tokens, position).float() / temperature).softmax(-1)
                drawn = p.div_(torch.empty_like(p).exponential_()).argmax(-1, keepdim=True)
        return written

    def _logits(self, tokens: Tensor, position: int) -> Tensor:
        model, batch = self._model, self._batch
        n, kv, epsilon = model.n_heads, model.n_kv_heads, model.epsilon
        cos, sin = self._cos[position : position + 1], self._sin[position : position + 1]
        x = model.head[tokens[:, 0]]
        for i, (qkv, output, gate_up, down) in enumerate(self._layers):
            w = model.layer(i)
            heads = linear(norm(x, w[0], epsilon), qkv, model.dtype).view(batch, 1, n + 2 * kv, -1)
            turned = rotate(heads[:, :, : n + kv], cos, sin)[:, 0]
            self._cache[i, 0, :, :, position] = turned[:, n:]
            self._cache[i, 1, :, :, position] = heads[:, 0, n + kv :]
            keys, values = self._cache[i, :, :, :, : position + 1].unbind(0)
            # The query heads of a key head are treated as positions: each key is read once.
            mixed = functional.scaled_dot_product_attention(turned[:, :n].reshape(batch, kv, n // kv, -1), keys, values)
            x = x + functional.linear(mixed.reshape(batch, -1), output).float()
            gate, up = linear(norm(x, w[5], epsilon), gate_up, model.dtype).chunk(2, -1)
            x = x + functional.linear(self._activation(gate) * up, down).float()
        return functional.linear(last_norm(model, x), self._head)


def write_texts(model: Llama, tokens: Any, seconds: float, settings: Settings) -> Tensor:
    """Sequences [N, length] of int32, as many batches as fit into the time, at least one."""
    ends, found = time.perf_counter() + seconds, []
    writer = Writer(model, settings.writers, settings.length)
    scripts = torch.from_numpy(tokens["scripts"]).long().to(model.device)
    stops = torch.from_numpy(tokens["stops"]).long().to(model.device)
    took = 0.0
    while not found or time.perf_counter() + took < ends:
        began = time.perf_counter()
        chosen = torch.randint(len(scripts), (settings.writers,), device=model.device)
        found.append(writer.write(scripts[chosen], stops).int())
        wait(model)
        took = time.perf_counter() - began
        say(f"wrote {len(found) * found[0].numel():,} tokens, {found[0].numel() / took:,.0f} per second")
    del writer
    if model.device.type == "cuda":
        torch.cuda.empty_cache()
    return torch.cat(found)
