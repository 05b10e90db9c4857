"""Make a small SiLU model sparse on one GPU: FATReLU in its FFNs, distilled from the model on text of its own.

    python tests/benchmarks/sparsify_small.py prepare MODEL.gguf TOKENS.npz --texts story.txt wiki.txt
    python tests/benchmarks/sparsify_small.py train MODEL.gguf TOKENS.npz --out FOLDER [--minutes 9] [--share 0.25]
    python tests/benchmarks/sparsify_small.py join MODEL.gguf FOLDER NEW.gguf

prepare tokenizes prompts and the texts to evaluate on. train needs PyTorch and NumPy alone:

1. The model writes text at temperatures 0.8 and 1: chats about short requests, and texts from a beginning.
2. A copy, the student, learns the model's distribution of the next token (KL divergence, no labels). Its activation
   moves from silu(g) to FATReLU: g where g > t, else 0. Each neuron has its own threshold t = c * m / w: w is its mean
   |up| times the norm of its column of down, m the layer's mean of relu(g) * w. Feedback sets c so that the share of
   active neurons falls linearly from ReLU's to the wanted one. A second loss is a smooth count of active neurons.
3. Perplexity, KL divergence, most likely token and share of active neurons, on held-out text of its own and on the
   other texts; for several c; and of the untrained model with ReLU, or without its weakest neurons as in made_zeros.py.

Written to --out: metrics.json, after each stage. With --keep also the written text, the student in F32 to continue
from, and its trained tensors in Q8_0 (student-N.bin), which join puts into a copy of MODEL.gguf. That file has one
threshold for all neurons: a neuron's row of gate is multiplied, and its row of up divided, by the ratio of the two.
Only LLaMA models with tied embeddings.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from engine.formats.gguf import open_gguf  # noqa: E402 - found by the line above
from native_kernels.codecs import CODECS  # noqa: E402

Tensor = torch.Tensor
MOST_SCRIPT = 512  # tokens
MODEL_WRITES = -1  # in a script of tokens: the model writes until it ends its turn
HELD_OUT = 0.05  # of the written sequences, for evaluation
PART_BYTES = 15 << 20  # of a file of the student
PER_LAYER = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
SHARES = (0.5, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1)  # of the curve

BEGAN = time.perf_counter()


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGAN:6.1f} s] {text}", flush=True)


# The model.


@dataclass
class Llama:
    """Weights by GGUF name. Matrices are multiplied in `dtype`; the residual stream is f32."""

    weights: dict[str, Tensor]
    n_layers: int
    n_heads: int
    n_kv_heads: int
    epsilon: float
    rope_base: float
    dtype: torch.dtype

    @classmethod
    def read(cls, path: Path, device: str) -> Llama:
        source = open_gguf(path)
        data = source.metadata
        if data["general.architecture"] != "llama" or "output.weight" in source.tensors:
            raise SystemExit(f"{path.name} is no LLaMA model with tied embeddings.")
        weights = {name: torch.from_numpy(source.read_f32(name).copy()).to(device) for name in source.tensors}
        return cls(
            weights, data["llama.block_count"], data["llama.attention.head_count"],
            data["llama.attention.head_count_kv"], data["llama.attention.layer_norm_rms_epsilon"],
            data.get("llama.rope.freq_base", 10000.0), torch.bfloat16 if device == "cuda" else torch.float32,
        )  # fmt: skip

    @classmethod
    def random(cls, n_layers: int, device: str) -> Llama:
        """SmolLM2-135M's shape with so many layers, to test the program without a file."""
        shapes = {"attn_q": (576, 576), "attn_k": (192, 576), "attn_v": (192, 576), "attn_output": (576, 576)}
        shapes |= {"ffn_gate": (1536, 576), "ffn_up": (1536, 576), "ffn_down": (576, 1536)}
        made = {
            f"blk.{i}.{name}.weight": 0.03 * torch.randn(shape)
            for i in range(n_layers)
            for name, shape in shapes.items()
        }
        ones = [f"blk.{i}.{name}.weight" for i in range(n_layers) for name in ("attn_norm", "ffn_norm")]
        made |= {name: torch.ones(576) for name in [*ones, "output_norm.weight"]}
        made["token_embd.weight"] = 0.1 * torch.randn(49152, 576)
        weights = {name: one.to(device) for name, one in made.items()}
        return cls(weights, n_layers, 9, 3, 1e-5, 1e5, torch.bfloat16 if device == "cuda" else torch.float32)

    def copy(self) -> Llama:
        return Llama({name: one.clone() for name, one in self.weights.items()}, *list(vars(self).values())[1:])

    def layer(self, i: int) -> list[Tensor]:
        return [self.weights[f"blk.{i}.{name}.weight"] for name in PER_LAYER]

    def rotations(self, n: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines, each [n, head width / 2]."""
        half = self.weights["blk.0.attn_q.weight"].shape[0] // self.n_heads // 2
        at = torch.arange(half, device=self.device, dtype=torch.float64) / half
        angles = torch.outer(torch.arange(n, device=self.device, dtype=torch.float64), self.rope_base**-at)
        return angles.cos().float(), angles.sin().float()

    @property
    def device(self) -> torch.device:
        return self.weights["token_embd.weight"].device

    @property
    def n_neurons(self) -> int:
        return self.weights["blk.0.ffn_gate.weight"].shape[0]

    @property
    def head(self) -> Tensor:
        return self.weights["token_embd.weight"]


def linear(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    return functional.linear(x.to(dtype), weight.to(dtype))


def norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """GGUF's LLaMA rotates neighbouring numbers. x [..., T, H, W], cos and sin [T, W / 2]."""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(x.dtype)


def attention(
    x: Tensor, w: list[Tensor], rotations: tuple[Tensor, Tensor], heads: tuple[int, int], epsilon: float,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    before = norm(x, w[0], epsilon)
    q, k, v = (
        linear(before, one, dtype).unflatten(-1, (n, -1))
        for one, n in zip(w[1:4], (heads[0], heads[1], heads[1]), strict=True)
    )
    q, k = rotate(q, *rotations), rotate(k, *rotations)
    mixed = functional.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
    )
    return x + linear(mixed.transpose(1, 2).flatten(-2), w[4], dtype).float()


def plain_layer(x: Tensor, w: list[Tensor], rotations: tuple[Tensor, Tensor], heads: tuple[int, int],
                epsilon: float, dtype: torch.dtype) -> Tensor:  # fmt: skip
    """A layer with SiLU: x f32 [B, T, D] to the same."""
    x = attention(x, w, rotations, heads, epsilon, dtype)
    before = norm(x, w[5], epsilon)
    hidden = functional.silu(linear(before, w[6], dtype)) * linear(before, w[7], dtype)
    return x + linear(hidden, w[8], dtype).float()


def student_layer(
    x: Tensor, w: list[Tensor], rotations: tuple[Tensor, Tensor], heads: tuple[int, int], epsilon: float,
    dtype: torch.dtype, threshold: Tensor, width: Tensor, change: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """A layer with (1 - change) * silu + change * FATReLU.

    threshold [F]; width: of the smooth count, in units of the gate. Returns x, the share of active neurons, their
    smooth count as a share, and the means of |up| and of relu(gate), [2, F], over the first sequences.
    """
    x = attention(x, w, rotations, heads, epsilon, dtype)
    before = norm(x, w[5], epsilon)
    gate, up = linear(before, w[6], dtype).float(), linear(before, w[7], dtype)
    active = gate > threshold
    near = torch.sigmoid((gate - threshold) / width)
    # Inactive neurons near the threshold get a gradient too, so that they can become active again.
    passed = torch.where(active, gate, near.detach() * (gate - gate.detach()))
    activated = (1 - change) * functional.silu(gate) + change * passed
    x = x + linear(activated.to(dtype) * up, w[8], dtype).float()
    seen = torch.stack((up[:4].detach().float().abs().mean((0, 1)), gate[:4].detach().relu().mean((0, 1))))
    return x, active.float().mean().detach(), near.mean(), seen


def tested_layer(
    x: Tensor, w: list[Tensor], rotations: tuple[Tensor, Tensor], heads: tuple[int, int], epsilon: float,
    dtype: torch.dtype, threshold: Tensor, skips: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """FATReLU, or with `skips` SiLU where |silu| is above the threshold. Returns x and which neurons are active."""
    x = attention(x, w, rotations, heads, epsilon, dtype)
    before = norm(x, w[5], epsilon)
    gate, up = linear(before, w[6], dtype).float(), linear(before, w[7], dtype)
    values = functional.silu(gate) if skips else gate
    active = (values.abs() if skips else values) > threshold
    x = x + linear((values * active).to(dtype) * up, w[8], dtype).float()
    return x, active


def kl_chunk(student: Tensor, teacher: Tensor, head: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of KL(teacher || student) over positions [N, D], and its gradient for `student`."""
    wanted, found = (functional.linear(one, head).float() for one in (teacher, student))
    log_wanted, log_found = wanted.log_softmax(-1), found.log_softmax(-1)
    p = log_wanted.exp()
    kl = (p * (log_wanted - log_found)).sum()
    return kl, (log_found.exp() - p).to(head.dtype) @ head


class KL(torch.autograd.Function):
    """Mean KL divergence of next tokens; logits exist for one chunk of positions at a time."""

    @staticmethod
    def forward(ctx: Any, student: Tensor, teacher: Tensor, head: Tensor, of_chunk: Any, chunk: int) -> Any:
        total, gradient = torch.zeros((), device=student.device), torch.empty_like(student)
        for at in range(0, len(student), chunk):
            rows = slice(at, at + chunk)
            kl, gradient[rows] = of_chunk(student[rows], teacher[rows], head)
            total += kl
        ctx.save_for_backward(gradient / len(student))
        return total / len(student)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.saved_tensors[0] * gradients[0].to(ctx.saved_tensors[0].dtype), None, None, None, None


class Programs:
    """The functions that training calls, compiled where that works."""

    def __init__(self, compiled: bool) -> None:
        self.plain, self.student = plain_layer, student_layer
        self.kl = kl_chunk
        if compiled:
            for name in ("plain", "student", "kl"):
                setattr(self, name, torch.compile(getattr(self, name), dynamic=False))

    @staticmethod
    def working(model: Llama, settings: Settings, wanted: bool) -> Programs:
        """Compile and try a step, with smaller parts of a batch if memory is short; uncompiled ones if that fails."""
        while wanted:
            programs = Programs(compiled=True)
            try:
                Trainer(model, model.copy(), programs, settings).try_out()
            except torch.OutOfMemoryError:
                settings.micro //= 2
                wanted = settings.micro > 8
            except Exception as error:  # noqa: BLE001 - of any kind: the uncompiled functions do the same
                say(f"not compiled: {type(error).__name__}: {str(error)[:1000]}")
                break
            else:
                say(f"compiled; {settings.micro} sequences at once")
                return programs
            torch.cuda.empty_cache()
        settings.micro = min(settings.micro, 16)  # more activations are kept
        return Programs(compiled=False)


def same_for_all(model: Llama) -> tuple[Any, ...]:
    return (model.n_heads, model.n_kv_heads), model.epsilon, model.dtype


def run_plain(model: Llama, tokens: Tensor, programs: Programs) -> list[Tensor]:
    """The residual stream after each layer, f32 [B, T, D]."""
    found, rotations = [model.head[tokens].float()], model.rotations(tokens.shape[1])
    for i in range(model.n_layers):
        found.append(programs.plain(found[-1], model.layer(i), rotations, *same_for_all(model)))
    return found[1:]


def last_norm(model: Llama, x: Tensor) -> Tensor:
    return norm(x, model.weights["output_norm.weight"], model.epsilon).to(model.dtype).flatten(0, -2)


# The text.

_SUBJECTS = """
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
_REQUESTS = """
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


def _listed(text: str) -> list[str]:
    return [one.strip(" ").replace("\\n", "\n") for one in text.strip().replace(";\n", "; ").split("; ")]


class ScriptWriter:
    """Draws scripts: token ids that are given, with MODEL_WRITES where the model writes until it ends its turn."""

    def __init__(self, tokenizer: Any, seed: int) -> None:
        self._tokenizer, self._draw = tokenizer, random.Random(seed)
        self._subjects, self._requests = _listed(_SUBJECTS), _listed(_REQUESTS)
        self._follow_ups, self._beginnings = _listed(_FOLLOW_UPS), _listed(_BEGINNINGS)
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

    def __init__(self, model: Llama, batch: int, length: int) -> None:
        self._model, self._batch, self._length = model, batch, length
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
            x = x + functional.linear(functional.silu(gate) * up, down).float()
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


# Training.


@dataclass
class Settings:
    """As on the command line."""

    share: float = 0.25
    rate: float = 1e-3
    count_weight: float = 0.5
    batch: int = 64
    micro: int = 64
    writers: int = 2048
    length: int = 512
    chunk: int = 4096


class Trainer:
    """The student, its thresholds and its optimizer. Every schedule follows `progress`, the share of the time used."""

    def __init__(self, teacher: Llama, student: Llama, programs: Programs, settings: Settings) -> None:
        self.teacher, self.student, self.programs, self.settings = teacher, student, programs, settings
        self.trained = [one.requires_grad_() for name, one in student.weights.items() if one is not student.head]
        self.optimizer = torch.optim.AdamW(
            self.trained, lr=settings.rate, betas=(0.9, 0.95), weight_decay=0.0, fused=student.device.type == "cuda"
        )
        zeros = torch.zeros((student.n_layers, student.n_neurons), device=student.device)
        self.up, self.gate = zeros.clone(), zeros.clone()  # running means of |up| and of relu(gate), [L, F]
        self.thresholds, self.unit = zeros.clone(), zeros.clone()  # unit: the thresholds for c = 1
        self.c = torch.zeros((), device=student.device)
        self.width = zeros + 1
        self.natural = 0.5  # share of active neurons with ReLU, before training
        self._head = teacher.head.to(teacher.dtype)
        self._steps = 0

    @torch.no_grad()
    def measure(self, tokens: Tensor) -> None:
        """Set units and widths from the untrained student."""
        compiled, self.programs = self.programs, Programs(compiled=False)  # one run without gradients
        shares, _ = self._layers(tokens, torch.zeros((), device=tokens.device), smooths=[], states=None)
        self.programs = compiled
        self._set_units(1.0)
        self.natural = float(shares.mean())
        self.width = (0.25 * self.gate.mean(1) / shares)[:, None].repeat(1, self.student.n_neurons)
        say(f"active with ReLU: {self.natural:.3f}; by layer " + " ".join(f"{one:.2f}" for one in shares.tolist()))

    def _layers(self, tokens: Tensor, change: Tensor, smooths: list[Tensor], states: list[Tensor] | None) -> Any:
        """Run the student; return the shares of active neurons, [L], and its last x with the mean error of all x."""
        model, shares, errors, seen = self.student, [], [], []
        x, rotations = model.head[tokens].float(), model.rotations(tokens.shape[1])
        for i in range(model.n_layers):
            x, share, smooth, stats = self.programs.student(
                x, model.layer(i), rotations, *same_for_all(model), self.thresholds[i], self.width[i], change
            )
            shares.append(share)
            smooths.append(smooth)
            seen.append(stats)
            if states is not None:
                errors.append(((x - states[i]).square().sum(-1) / states[i].square().sum(-1)).mean())
        self._seen = torch.stack(seen)
        return torch.stack(shares), (x, torch.stack(errors).mean() if errors else x.new_zeros(()))

    @torch.no_grad()
    def _set_units(self, weight: float) -> None:
        self.up.lerp_(self._seen[:, 0], weight)
        self.gate.lerp_(self._seen[:, 1], weight)
        norms = [self.student.weights[f"blk.{i}.ffn_down.weight"].norm(dim=0) for i in range(self.student.n_layers)]
        worth = self.up * torch.stack(norms) + 1e-12
        self.unit = (self.gate * worth).mean(1, keepdim=True) / worth

    def wanted_share(self, progress: float) -> float:
        fallen = min(1.0, max(0.0, (progress - 0.05) / 0.6))
        return self.natural + fallen * (min(self.natural, self.settings.share) - self.natural)

    def step(self, tokens: Tensor, progress: float) -> dict[str, Tensor]:
        """One update with sequences [batch, T]."""
        settings, parts = self.settings, tokens.split(self.settings.micro)
        change = torch.tensor(min(1.0, progress / 0.25), device=tokens.device)
        error_weight = max(0.0, 1.0 - 2 * progress)
        count_weight = settings.count_weight * min(1.0, progress / 0.3)
        rate = min(1.0, progress / 0.03 + 0.01) * (0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * progress)))
        for group in self.optimizer.param_groups:
            group["lr"] = settings.rate * rate
        sums = dict.fromkeys(("kl", "error", "share"), torch.zeros((), device=tokens.device))
        for part in parts:
            with torch.no_grad():
                states = run_plain(self.teacher, part, self.programs)
                wanted = last_norm(self.teacher, states[-1])
            smooths: list[Tensor] = []
            shares, (x, error) = self._layers(part, change, smooths, states if error_weight else None)
            del states
            kl = KL.apply(last_norm(self.student, x), wanted, self._head, self.programs.kl, settings.chunk)
            count = torch.stack(smooths).mean() * (self.c > 0)
            ((kl + error_weight * error + count_weight * count) / len(parts)).backward()
            for name, one in (("kl", kl), ("error", error), ("share", shares.mean())):
                sums[name] = sums[name] + one.detach() / len(parts)
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._steps += 1
        if self._steps % 10 == 0:
            self._set_units(0.1)
        self.c = (self.c + 0.3 * (sums["share"] - self.wanted_share(progress))).clamp(min=0)
        self.thresholds = self.c * self.unit
        return sums | {"c": self.c}

    def try_out(self) -> None:
        """One step with random tokens of the real shape; changes nothing but the optimizer's numbers and weights."""
        shape = (self.settings.batch, self.settings.length)
        tokens = torch.randint(100, len(self.student.head), shape, device=self.student.device)
        self.measure(tokens[: self.settings.micro])
        self.step(tokens, 0.1)
        wait(self.student)


def wait(model: Llama) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize()


# Evaluation.


class Texts:
    """Sequences to evaluate on, by name, with the teacher's last states."""

    def __init__(self, teacher: Llama, sequences: dict[str, Tensor], chunk: int, micro: int) -> None:
        self.teacher, self.sequences, self._chunk, self._micro = teacher, sequences, chunk, micro
        self._head = teacher.head.to(teacher.dtype)
        self._wanted: dict[str, list[Tensor]] = {}

    def _parts(self, name: str) -> Iterator[Tensor]:
        tokens = self.sequences[name]
        return iter(tokens.split(max(1, self._micro * self.sequences["own"].shape[1] // tokens.shape[1])))

    @torch.no_grad()
    def evaluate(
        self, model: Llama, thresholds: Tensor | None, skips: bool = False, only: int | None = None
    ) -> dict[str, Any]:
        """thresholds [L, F] of FATReLU, or of |silu| with `skips`; None: SiLU. only: that many parts of each text."""
        found: dict[str, Any] = {"texts": {}}
        active = torch.zeros((model.n_layers, model.n_neurons), device=model.device)
        n_active = 0
        for name in self.sequences:
            sums, n = torch.zeros(4, dtype=torch.float64, device=model.device), 0
            for number, part in enumerate(self._parts(name)):
                if only is not None and number >= only:
                    break
                part = part.long()
                known = self._wanted.setdefault(name, [])
                if number == len(known):
                    known.append(last_norm(self.teacher, self._states(self.teacher, part, None, False, None)))
                counts = active if name == "own" else None
                states = last_norm(model, self._states(model, part, thresholds, skips, counts))
                sums += self._compare(states, known[number], part)
                n += part[:, 1:].numel()
                n_active += part.numel() * (name == "own")
            kl, same, nll, wanted_nll = (sums / n).tolist()
            found["texts"][name] = {
                "kl": kl, "top1": same, "perplexity": math.exp(nll), "of_original": math.exp(wanted_nll),
                "rise": math.exp(nll - wanted_nll) - 1, "tokens": n,
            }  # fmt: skip
        if thresholds is not None:
            shares = active / n_active
            found |= {
                "share": float(shares.mean()),
                "share_of_layers": [round(one, 4) for one in shares.mean(1).tolist()],
            }
            found["never_active"] = float((active == 0).float().mean())
        return found

    def _states(
        self, model: Llama, tokens: Tensor, thresholds: Tensor | None, skips: bool, counts: Tensor | None
    ) -> Tensor:
        x, rotations = model.head[tokens].float(), model.rotations(tokens.shape[1])
        for i in range(model.n_layers):
            if thresholds is None:
                x = plain_layer(x, model.layer(i), rotations, *same_for_all(model))
                continue
            x, active = tested_layer(x, model.layer(i), rotations, *same_for_all(model), thresholds[i], skips)
            if counts is not None:
                counts[i] += active.sum((0, 1))
        return x

    def _compare(self, states: Tensor, wanted: Tensor, tokens: Tensor) -> Tensor:
        """Sums of KL, same top token, and both negative log likelihoods over all positions with a next token."""
        keep = torch.ones_like(tokens, dtype=torch.bool)
        keep[:, -1] = False
        targets = tokens.roll(-1, 1)[keep]
        states, wanted = states[keep.flatten()], wanted[keep.flatten()]
        sums = torch.zeros(4, dtype=torch.float64, device=tokens.device)
        for at in range(0, len(targets), self._chunk):
            rows = slice(at, at + self._chunk)
            ours, theirs = (
                functional.linear(one[rows], self._head).float().log_softmax(-1) for one in (states, wanted)
            )
            sums[0] += (theirs.exp() * (theirs - ours)).sum()
            sums[1] += (theirs.argmax(-1) == ours.argmax(-1)).sum()
            for i, one in ((2, ours), (3, theirs)):
                sums[i] -= one.gather(1, targets[rows, None]).double().sum()
        return sums

    @torch.no_grad()
    def factor_for(self, model: Llama, unit: Tensor, share: float, tokens: Tensor, skips: bool = False) -> float:
        """Return the c whose thresholds keep this share of the neurons active on these sequences; 0 if fewer are."""
        low, high = 0.0, 16.0
        for _ in range(14):
            middle = (low + high) / 2
            counts = torch.zeros_like(unit)
            self._states(model, tokens.long(), middle * unit, skips, counts)
            low, high = (middle, high) if float(counts.mean()) / tokens.numel() > share else (low, middle)
        return low


# The student as a file.


def folded(trainer: Trainer, thresholds: Tensor) -> tuple[dict[str, Tensor], float]:
    """The trained weights for one common threshold, and that. FATReLU of r * g at r * t is r times that of g at t."""
    weights = {name: one.detach().clone() for name, one in trainer.student.weights.items()}
    del weights["token_embd.weight"]
    common = float(thresholds.median())
    if common > 0:
        for i, row in enumerate(common / thresholds.clamp(min=1e-3 * common)):
            weights[f"blk.{i}.ffn_gate.weight"] *= row[:, None]
            weights[f"blk.{i}.ffn_up.weight"] /= row[:, None]
    return weights, common


def save_parts(weights: dict[str, Tensor], folder: Path) -> list[Any]:
    """Write student-N.bin: matrices in Q8_0, vectors in F32, one after another. Returns their names, codecs, shapes."""
    listed, blocks = [], []
    for name, one in weights.items():
        codec = "q8_0" if one.dim() == 2 else "f32"
        blocks.append(np.ascontiguousarray(CODECS[codec].encode(one.float().cpu().numpy())).reshape(-1).view(np.uint8))
        listed.append([name, codec, list(one.shape), blocks[-1].size])
    data = np.concatenate(blocks)
    for number, at in enumerate(range(0, data.size, PART_BYTES)):
        (folder / f"student-{number}.bin").write_bytes(data[at : at + PART_BYTES].tobytes())
    return listed


def join(path: Path, folder: Path, target: Path) -> None:
    """Write MODEL.gguf with the student's tensors and activation to target. Needs the package gguf."""
    import gguf

    student = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["student"]
    parts = sorted(folder.glob("student-*.bin"), key=lambda one: int(one.stem.split("-")[1]))
    data, at, new = np.concatenate([np.fromfile(one, np.uint8) for one in parts]), 0, {}
    for name, codec, shape, size in student["tensors"]:
        new[name] = (codec, tuple(shape), data[at : at + size])
        at += size
    if at != data.size:
        raise SystemExit(f"{folder} holds {data.size} bytes of the student; {at} were written.")
    reader, source = gguf.GGUFReader(path), open_gguf(path)
    writer = gguf.GGUFWriter(target, "llama")
    for key, one in reader.fields.items():
        if not key.startswith("GGUF.") and key not in ("general.architecture", "general.file_type"):
            kind = one.types[0]
            writer.add_key_value(key, one.contents(), kind, one.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_string("hearth.activation", "fatrelu-glu" if student["threshold"] > 0 else "relu-glu")
    writer.add_float32("hearth.activation_threshold", student["threshold"])
    for name, info in source.tensors.items():
        codec, shape, values = new.get(name, (info.codec, info.shape, source.view(name)))
        assert shape == tuple(info.shape)
        if codec == "f32":
            writer.add_tensor(name, np.ascontiguousarray(values).view(np.uint8).view(np.float32).reshape(shape))
        else:
            rows = np.ascontiguousarray(values).view(np.uint8).reshape(shape[0], -1)
            writer.add_tensor(name, rows, raw_dtype=gguf.GGMLQuantizationType[codec.upper()])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# All of it.


def sequences_of(tokens: Any, own: Tensor, settings: Settings) -> dict[str, Tensor]:
    """Held-out text of its own, and the other texts in windows of the same length; the last one in long windows too."""
    found, most = {"own": own[:192]}, 64 * 1024 if settings.length == 512 else 512
    for name in (one for one in tokens.files if one.startswith("text ")):
        ids = torch.from_numpy(tokens[name][:most]).to(own.device)
        found[name.removeprefix("text ")] = ids[: len(ids) // settings.length * settings.length].view(
            -1, settings.length
        )
    long = 4 * settings.length
    found["docs, long"] = found["docs"].flatten()[: found["docs"].numel() // long * long].view(-1, long)
    return found


def shown(found: dict[str, Any]) -> str:
    share = f"share {found['share']:.3f}, never {found['never_active']:.3f}; " if "share" in found else ""
    return share + "; ".join(
        f"{name} {one['of_original']:.2f} -> {one['perplexity']:.2f} ({one['rise']:+.1%}), kl {one['kl']:.4f}, "
        f"top1 {one['top1']:.3f}"
        for name, one in found["texts"].items()
    )


class Run:
    """All stages within a time, with the metrics written after each."""

    def __init__(self, flags: argparse.Namespace, settings: Settings) -> None:
        self.flags, self.settings = flags, settings
        self.ends = BEGAN + 60 * flags.minutes
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.metrics: dict[str, Any] = {
            "command": "python " + " ".join(sys.argv), "date": time.strftime("%Y-%m-%d"), "torch": torch.__version__,
            "hardware": torch.cuda.get_device_name() if self.device == "cuda" else "CPU", "settings": vars(settings),
            "seconds": {}, "course": [], "checkpoints": [], "untrained": [], "curve": [],
        }  # fmt: skip
        self.tokens = np.load(flags.tokens)
        layers = flags.random_layers
        self.teacher = Llama.random(layers, self.device) if layers else Llama.read(flags.model, self.device)
        self.metrics["model"] = flags.model.stem

    def stage(self, name: str) -> None:
        self.metrics["seconds"][name] = round(time.perf_counter() - BEGAN, 1)
        self.save()

    def save(self) -> None:
        (self.flags.out / "metrics.json").write_text(json.dumps(self.metrics, indent=1) + "\n", encoding="utf-8")

    def run(self) -> None:
        flags, settings = self.flags, self.settings
        flags.out.mkdir(parents=True, exist_ok=True)
        text = self.text()
        held_out = max(1, int(HELD_OUT * len(text)))
        own, train = text[:held_out], text[held_out:]
        self.metrics["written"] = {"tokens": text.numel(), "held_out": own.numel()}
        self.stage("text")
        programs = Programs.working(self.teacher, settings, flags.compile)
        trainer = Trainer(self.teacher, self.teacher.copy(), programs, settings)
        texts = Texts(self.teacher, sequences_of(self.tokens, own, settings), settings.chunk, settings.micro)
        trainer.measure(train[: settings.micro].long())
        self.stage("compiled")
        calibration = train[: max(1, settings.micro // 2)]
        if flags.resume:
            self.resume(trainer)
        else:
            self.untrained(texts, trainer.unit.clone(), calibration)
        self.stage("untrained")
        self.train(trainer, train, texts)
        self.stage("trained")
        self.finish(trainer, texts, calibration)

    def text(self) -> Tensor:
        kept = self.flags.keep / "text.pt" if self.flags.keep else None
        if kept and kept.exists():
            return torch.load(kept, map_location=self.device)
        left = self.ends - time.perf_counter()
        text = write_texts(self.teacher, self.tokens, self.flags.writing * left, self.settings)
        text = text[torch.randperm(len(text), device=text.device)]
        if kept:
            kept.parent.mkdir(parents=True, exist_ok=True)
            torch.save(text.cpu(), kept)
        return text

    def untrained(self, texts: Texts, unit: Tensor, calibration: Tensor) -> None:
        """The model itself, with ReLU, and without its weakest neurons."""
        cases: list[tuple[str, Tensor | None, bool]] = [("SiLU", None, False), ("ReLU", 0 * unit, False)]
        for share in (0.75, 0.5, 0.35, 0.25):
            factor = texts.factor_for(self.teacher, unit, share, calibration, skips=True)
            cases.append((f"SiLU without weak neurons, {share}", factor * unit, True))
        for name, thresholds, skips in cases:
            found = texts.evaluate(self.teacher, thresholds, skips)
            self.metrics["untrained"].append({"name": name, **found})
            say(f"{name}: {shown(found)}")

    def resume(self, trainer: Trainer) -> None:
        kept = torch.load(self.flags.keep / "student.pt", map_location=self.device)
        with torch.no_grad():
            for name, one in kept["weights"].items():
                trainer.student.weights[name].copy_(one)
        trainer.up, trainer.gate, trainer.c, trainer.unit = kept["up"], kept["gate"], kept["c"], kept["unit"]
        trainer.thresholds = trainer.c * trainer.unit

    def train(self, trainer: Trainer, train: Tensor, texts: Texts) -> None:
        settings = self.settings
        began, said, n, marks = time.perf_counter(), 0.0, 0, [0.125 * i for i in range(1, 8)]
        seconds = max(1.0, self.ends - began - self.flags.reserve)
        # A student that is continued goes on where the schedules end to change the activation and the share.
        start = 0.65 if self.flags.resume else 0.0
        order = iter(())  # type: ignore[var-annotated]
        paused = 0.0
        while (passed := (time.perf_counter() - began - paused) / seconds) < 1 and n != self.flags.steps:
            progress = start + (1 - start) * passed
            batch = next(order, None)
            if batch is None or len(batch) < min(settings.batch, len(train)):
                order = iter(torch.randperm(len(train), device=train.device).split(settings.batch))
                batch = next(order)
            sums, n = trainer.step(train[batch].long(), progress), n + 1
            if time.perf_counter() - said > 10 or n < 4:
                row = {name: round(float(one), 5) for name, one in sums.items()}
                said = time.perf_counter()
                row |= {"step": n, "progress": round(progress, 3), "wanted": round(trainer.wanted_share(progress), 4)}
                row["tokens_per_s"] = round(n * settings.batch * settings.length / (said - began - paused))
                self.metrics["course"].append(row)
                say(json.dumps(row))
                if not math.isfinite(row["kl"]):
                    raise SystemExit("The loss is not finite.")
            if marks and progress >= marks[0]:
                marks.pop(0)
                if progress >= 0.25:
                    started = time.perf_counter()
                    found = texts.evaluate(trainer.student, trainer.thresholds, only=1)
                    self.metrics["checkpoints"].append({"step": n, "progress": round(progress, 3), **found})
                    say(f"checkpoint: {shown(found)}")
                    self.save()
                    lost = time.perf_counter() - started
                    seconds, paused = max(1.0, seconds - lost), paused + lost
        self.metrics["steps"] = n
        wait(trainer.student)

    def finish(self, trainer: Trainer, texts: Texts, calibration: Tensor) -> None:
        """The curve of several shares; the student for the wanted share as a file."""
        wanted = self.settings.share
        for share in sorted({*SHARES, wanted}, key=lambda one: (one != wanted, abs(one - wanted))):
            if time.perf_counter() > self.ends - 6 and share != wanted:
                say(f"no time for the share {share}")
                continue
            factor = texts.factor_for(trainer.student, trainer.unit, share, calibration)
            found = texts.evaluate(trainer.student, factor * trainer.unit)
            self.metrics["curve"].append({"c": factor, "wanted": share, **found})
            say(f"c {factor:.3f}: {shown(found)}")
            if share == wanted and self.flags.keep:
                weights, threshold = folded(trainer, factor * trainer.unit)
                tensors = save_parts(weights, self.flags.keep)
                self.metrics["student"] = {"threshold": threshold, "tensors": tensors}
                state = {name: getattr(trainer, name) for name in ("up", "gate", "c", "unit")}
                kept = {name: one.detach() for name, one in trainer.student.weights.items()}
                torch.save(state | {"weights": kept}, self.flags.keep / "student.pt")
            self.stage(f"share {share}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    preparing, training, joining = (commands.add_parser(name) for name in ("prepare", "train", "join"))
    for one in (preparing, training, joining):
        one.add_argument("model", type=Path)
    preparing.add_argument("tokens", type=Path)
    preparing.add_argument("--texts", type=Path, nargs="*", default=[], help="to evaluate on, beside the docs")
    preparing.add_argument("--scripts", type=int, default=8000)
    training.add_argument("tokens", type=Path)
    training.add_argument("--out", type=Path, required=True)
    training.add_argument("--keep", type=Path, help="folder for the text and the student; text in it is used again")
    training.add_argument("--resume", action="store_true", help="continue the student in --keep")
    training.add_argument("--minutes", type=float, default=9.0, help="for all stages")
    training.add_argument("--writing", type=float, default=0.15, help="share of the time for writing")
    training.add_argument("--reserve", type=float, default=45.0, help="seconds for the evaluation at the end")
    training.add_argument("--steps", type=int, default=-1, help="at most; for tests")
    training.add_argument("--no-compile", dest="compile", action="store_false")
    training.add_argument("--random-layers", type=int, default=0, help="test the program with random weights")
    for name, value in vars(Settings()).items():
        training.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    joining.add_argument("folder", type=Path)
    joining.add_argument("target", type=Path)
    flags = parser.parse_args()
    if flags.command == "prepare":
        prepare(flags.model, flags.tokens, flags.texts, flags.scripts)
    elif flags.command == "join":
        join(flags.model, flags.folder, flags.target)
    else:
        Run(flags, Settings(**{name: getattr(flags, name) for name in vars(Settings())})).run()


if __name__ == "__main__":
    main()
