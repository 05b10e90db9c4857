"""Train what guesses tokens for a small model, and count its right guesses in the engine: a layer (MTP) or a draft.

    python tests/benchmarks/drafts_small.py [MODEL.gguf] --out FOLDER [--draft] [--write-s 60] [--train-s 80]
    python tests/benchmarks/drafts_small.py [MODEL.gguf] --out FOLDER [--draft] --trained FOLDER/trained.npz    (step 3)

MODEL: the starter model, or another LLaMA model with ReLU and tied embeddings. Needs PyTorch beside the engine; on a
CPU, give it more time.

1. The model writes chats about short requests, at temperatures 0.8 and 1.
2. A layer of the model's shape, begun as a copy of its last one, learns the model's distribution of the token after the
   next one (KL divergence), and from its own hidden state those of the two tokens after that. With --draft, instead: a
   model of two layers and a quarter of the width learns the distribution of the next token. Its embedding begins as the
   model's, projected to the directions in which it varies most. The model stays as it is.
3. The model answers other requests in the engine, on the CPU, with the layer (both in F16) or the draft (in F16 beside
   MODEL): the share of right guesses at the first, second and third step, greedily and sampled; and tokens/s with and
   without guesses, answer by answer in turns.

Written to --out: drafts_small.json, trained.npz, and with --draft draft.gguf. Takes about four minutes with the
defaults on an H100.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "benchmarks")]

from samples.raw_gguf import write_gguf  # noqa: E402 - found by the line above, like all below
from sparsify_model import (  # noqa: E402
    PER_LAYER,
    Llama,
    Tensor,
    attention,
    last_norm,
    linear,
    norm,
    same_for_all,
    say,
)
from sparsify_text import MODEL_WRITES, MOST_SCRIPT, REQUESTS, SUBJECTS, Writer, listed  # noqa: E402

from engine.config import EngineConfig, SamplingConfig  # noqa: E402
from engine.formats.gguf import open_gguf  # noqa: E402
from engine.loading.opening import read_tokenizer  # noqa: E402
from engine.model import draft_layer, families  # noqa: E402
from engine.model.family.names import GGUF_DRAFTS  # noqa: E402
from engine.model.model_files import open_model  # noqa: E402
from engine.session.chat_session import ChatSession  # noqa: E402
from engine.session.draft import Draft  # noqa: E402
from engine.session.guesses import Guesser, Guesses, StepTimes  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402
from engine.session.mtp import MtpGuesser, MtpRecord  # noqa: E402

LENGTH, SEQUENCES, STEPS = 320, 256, 3
DRAFT_LAYERS, NARROWER = 2, 4
OWN = ("draft.project", "draft.embedding_norm", "draft.hidden_norm", "draft.final_norm")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(ROOT / "assets/models/starter-chat/starter-chat-q8_0.gguf"))
    parser.add_argument("--out", required=True)
    parser.add_argument("--draft", action="store_true", help="a small model, instead of a layer")
    parser.add_argument("--write-s", type=float, default=60)
    parser.add_argument("--train-s", type=float, default=80)
    parser.add_argument("--answers", type=int, default=24)
    parser.add_argument("--trained", type=Path, help="what was trained before")
    parser.add_argument("--device", default="cpu", help="of the engine")
    flags = parser.parse_args()
    device, out, path = "cuda" if torch.cuda.is_available() else "cpu", Path(flags.out), Path(flags.model)
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it would prepare each length of a text for 0.1 s
    opened = open_model(path)
    tokenizer = read_tokenizer(opened, None)
    shuffled = [one.format(subject) for one in listed(REQUESTS) for subject in listed(SUBJECTS)]
    random.Random(0).shuffle(shuffled)
    prompts = [tokenizer.encode_chat([{"role": "user", "content": one}]) for one in shuffled]
    tests, prompts = prompts[: flags.answers], prompts[flags.answers :]
    found: dict[str, Any] = {"model": opened.name, "date": time.strftime("%Y-%m-%d")}
    if flags.trained is None:
        model = Llama.read(path, device)
        ends = set(tokenizer.stop_token_ids) | set(opened.config.eos_token_ids)
        texts = written(model, prompts, ends, flags.write_s)
        say(f"{texts.numel()} tokens written")
        made, found["losses"] = (trained_draft if flags.draft else trained_layer)(model, texts, flags.train_s)
        found["tokens"], found["trained on"] = texts.numel(), device
        np.savez(out / "trained.npz", **{name: one.half().cpu().numpy() for name, one in made.items()})
    with np.load(flags.trained or out / "trained.npz") as stored:
        tensors = {name: stored[name].astype(np.float32) for name in stored.files}
    drafting = drafting_file(path, tensors, out / "draft.gguf", flags.draft)
    found |= measured(path, drafting, tests, flags.draft, flags.device)
    (out / "drafts_small.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    return 0


def relu_layer(model: Llama, w: list[Tensor], x: Tensor) -> Tensor:
    """A layer with ReLU: x f32 [B, T, D] to the same."""
    x = attention(x, w, model.rotations(x.shape[1]), *same_for_all(model))
    before = norm(x, w[5], model.epsilon)
    hidden = linear(before, w[6], model.dtype).relu() * linear(before, w[7], model.dtype)
    return x + linear(hidden, w[8], model.dtype).float()


def hidden_of(model: Llama, tokens: Tensor) -> Tensor:
    """The head's inputs [B, T, D]."""
    x = model.head[tokens].float()
    for i in range(model.n_layers):
        x = relu_layer(model, model.layer(i), x)
    return last_norm(model, x).unflatten(0, tokens.shape)


def written(model: Llama, prompts: Sequence[list[int]], ends: set[int], seconds: float) -> Tensor:
    """Texts [N, LENGTH] by the model: chats one after the other."""
    n = SEQUENCES if model.device.type == "cuda" else 64
    writer = Writer(model, n, LENGTH, functional.relu)
    found, end, asked = [], time.perf_counter() + seconds, iter(prompts * 1000)
    stops = torch.tensor(sorted(ends), device=model.device)
    while not found or time.perf_counter() < end:
        scripts = torch.full((n, MOST_SCRIPT), MODEL_WRITES)
        for script in scripts:
            ids = [token for _ in range(16) for token in (*next(asked), MODEL_WRITES)][:MOST_SCRIPT]
            script[: len(ids)] = torch.tensor(ids)
        found.append(writer.write(scripts.to(model.device), stops))
        say(f"{n * LENGTH * len(found)} tokens")
    return torch.cat(found)


def trained_layer(model: Llama, texts: Tensor, seconds: float) -> tuple[dict[str, Tensor], list[float]]:
    """The layer's tensors by GGUF name, and the mean KL divergences of the steps in the end."""
    n, width = model.n_layers, model.head.shape[1]
    own = {f"blk.{n}.{name}.weight": one.clone() for name, one in zip(PER_LAYER, model.layer(n - 1), strict=True)}
    names = {key: GGUF_DRAFTS[key].format(n) for key in OWN}
    half = 0.5 * torch.eye(width, device=model.device)
    own[names["draft.project"]] = torch.cat([half, half], dim=1)
    own |= {names[key]: torch.ones(width, device=model.device) for key in OWN[1:3]}
    own[names["draft.final_norm"]] = model.weights["output_norm.weight"].clone()
    w = [own[f"blk.{n}.{name}.weight"] for name in PER_LAYER]
    project, of_embedding, of_hidden, final = (own[names[key]] for key in OWN)

    def drafted(tokens: Tensor, hidden: Tensor) -> list[Tensor]:
        state, found = hidden.float(), []
        for step in range(STEPS):  # position p of the state is text position p + step
            state = state[:, :-1]
            embedded = norm(model.head[tokens[:, step + 1 :]].float(), of_embedding, model.epsilon)
            both = torch.cat([embedded, norm(state, of_hidden, model.epsilon)], dim=-1)
            x = relu_layer(model, w, linear(both, project, model.dtype).float())
            state = norm(x, final, model.epsilon)
            found.append(linear(state, model.head, model.dtype))
        return found

    return own, fitted(model, own, texts, seconds, drafted)


def trained_draft(model: Llama, texts: Tensor, seconds: float) -> tuple[dict[str, Tensor], list[float]]:
    """As trained_layer: a model's tensors."""
    width, neurons = model.head.shape[1] // NARROWER, model.n_neurons // NARROWER
    n_heads, n_kv_heads = model.n_heads // NARROWER, max(1, model.n_kv_heads // NARROWER)
    head_width = len(model.weights["blk.0.attn_q.weight"]) // model.n_heads
    q, kv, ones = head_width * n_heads, head_width * n_kv_heads, torch.ones(width, device=model.device)
    shapes = [(q, width), (kv, width), (kv, width), (width, q), (neurons, width), (neurons, width), (width, neurons)]
    _, _, directions = torch.linalg.svd(model.head, full_matrices=False)
    own = {"token_embd.weight": model.head @ directions[:width].T, "output_norm.weight": 4 * ones}
    for i in range(DRAFT_LAYERS):
        matrices = iter([torch.randn(shape, device=model.device) * 0.5 / shape[1] ** 0.5 for shape in shapes])
        own |= {
            f"blk.{i}.{name}.weight": ones.clone() if name.endswith("norm") else next(matrices) for name in PER_LAYER
        }
    draft = replace(model, weights=own, n_layers=DRAFT_LAYERS, n_heads=n_heads, n_kv_heads=n_kv_heads)

    def drafted(tokens: Tensor, hidden: Tensor) -> list[Tensor]:
        return [linear(hidden_of(draft, tokens), draft.head, draft.dtype)]

    return own, fitted(model, own, texts, seconds, drafted, 3e-3)


def fitted(
    model: Llama, own: dict[str, Tensor], texts: Tensor, seconds: float,
    drafted: Callable[[Tensor, Tensor], list[Tensor]], rate: float = 1.5e-3,
) -> list[float]:  # fmt: skip
    """Train `own`; return the mean KL divergences of the steps in the end.

    drafted: tokens [B, T] and the head's inputs to each step's logits, of the last positions.
    """
    with torch.no_grad():
        states = torch.cat([hidden_of(model, some).to(model.dtype) for some in texts.split(32)])
    say("read")
    for one in own.values():
        one.requires_grad_(True)
    optimiser = torch.optim.AdamW(own.values(), rate, betas=(0.9, 0.95), weight_decay=0.0)
    began, steps, recent = time.perf_counter(), 0, list[float]()
    size = 32 if model.device.type == "cuda" else 4
    while (share := (time.perf_counter() - began) / seconds) < 1:
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1, (steps + 1) / 50) * max(0.02, 1 - share)
        chosen = torch.randint(len(texts), (size,), device=texts.device)
        with torch.no_grad():
            wanted = linear(states[chosen], model.head, model.dtype).float().log_softmax(-1)
        losses = []
        for logits in drafted(texts[chosen], states[chosen]):
            of_step, n = logits.float().log_softmax(-1), logits.shape[1]
            losses.append(
                functional.kl_div(of_step, wanted[:, -n:], reduction="sum", log_target=True) / of_step[..., 0].numel()
            )
        optimiser.zero_grad()
        sum(0.8**step * loss for step, loss in enumerate(losses)).backward()  # type: ignore[union-attr]
        torch.nn.utils.clip_grad_norm_(own.values(), 1.0)
        optimiser.step()
        steps, now = steps + 1, [float(loss.detach()) for loss in losses]
        recent = [0.98 * one + 0.02 * loss for one, loss in zip(recent or now, now, strict=True)]
        if steps % 200 == 0:
            say(f"{steps} steps, KL {', '.join(f'{one:.3f}' for one in recent)}")
    for one in own.values():
        one.requires_grad_(False)
    return [round(one, 4) for one in recent]


def drafting_file(source: Path, own: dict[str, np.ndarray], path: Path, is_draft: bool) -> Path:
    """The model and the layer in one file, or the draft, in F16."""
    opened = open_gguf(source)
    tensors = own if is_draft else {name: opened.read_f32(name) for name in opened.tensors} | own
    stored = {name: one.astype("<f2" if one.ndim > 1 else "<f4") for name, one in tensors.items()}
    metadata = {key: one.tolist() if isinstance(one, np.ndarray) else one for key, one in opened.metadata.items()}
    if is_draft:
        neurons, width = own["blk.0.ffn_gate.weight"].shape
        heads, kv_heads = (
            len(own[f"blk.0.attn_{one}.weight"]) // metadata["llama.attention.key_length"] for one in "qk"
        )
        metadata |= {
            "general.name": "A draft", "llama.block_count": DRAFT_LAYERS, "llama.embedding_length": width,
            "llama.feed_forward_length": neurons, "llama.attention.head_count": heads,
            "llama.attention.head_count_kv": kv_heads,
        }  # fmt: skip
    return write_gguf(path, metadata, stored)


class ThreeDrafts(StepTimes):
    """Three drafts are worth it, always."""

    def __init__(self) -> None:
        super().__init__()
        self.one_s = 1.0

    def add(self, n_tokens: int, seconds: float) -> None:
        """Do not learn."""

    def of(self, n_tokens: int) -> float:
        return 1.0 if n_tokens <= STEPS + 1 else 99.0


class Counted(Guesses):
    """Counts runs, tokens and right guesses by step, of those that followed right ones."""

    def __init__(self, times: StepTimes, source: Guesser, counts: np.ndarray) -> None:
        """counts [2, STEPS + 1]: right and seen guesses, and in the last column tokens and runs."""
        super().__init__(times, [source])
        self.counts = counts

    def computed(self, n_tokens: int, seconds: float, accepted: int, is_forced: bool = False) -> None:
        super().computed(n_tokens, seconds, accepted, is_forced)
        n_seen = min(accepted + 1, n_tokens - 1, STEPS)
        self.counts[1, :n_seen] += 1
        self.counts[0, : min(accepted, n_seen)] += 1
        self.counts[:, -1] += 1 + accepted, 1


def measured(
    path: Path, drafting: Path, prompts: Sequence[list[int]], is_draft: bool, device: str
) -> dict[str, Any]:  # fmt: skip
    """Run the model in the engine. drafting: as drafting_file has made it."""
    llama = next(one for one in families.FAMILIES if one.name == "llama")
    assert llama.gguf is not None
    with_drafts = replace(llama, drafts=not is_draft, gguf=replace(llama.gguf, drafts=GGUF_DRAFTS))
    families.FAMILIES = tuple(with_drafts if one is llama else one for one in families.FAMILIES)
    engine = EngineConfig(device=device, context=1024, draft="off")
    model = LoadedModel.load(path, engine) if is_draft else LoadedModel.load(drafting, replace(engine, mode="dense"))
    draft, record = None, MtpRecord()
    if is_draft:
        small = LoadedModel.load(drafting, engine, backend=model.backend)
        draft = Draft(small, model.opened.config.vocab_size)
    greedy, sampled = SamplingConfig(temperature=0, max_tokens=120), SamplingConfig(seed=1, max_tokens=120)
    found: dict[str, Any] = {
        "right guesses by step": {}, "tokens of a run with three guesses": {}, "threads": model.threads,
        "device": model.device_reason,
    }  # fmt: skip

    def source(session: ChatSession, times: StepTimes) -> Guesser:
        if draft is not None:
            draft.begin(times)
            return draft
        drafter, trail = session.model.drafter, session.cache.trail
        assert drafter is not None
        assert trail is not None
        return MtpGuesser(drafter, trail, record)

    usual = draft_layer.FIRST_POSITIONS
    ways = {"greedy": (greedy, usual), "sampled": (sampled, usual)}
    if not is_draft:
        ways["8 tokens of the prompt"] = (greedy, 8)
    for name, (sampling, first) in ways.items():
        draft_layer.FIRST_POSITIONS = first
        counts = np.zeros((2, STEPS + 1))
        for prompt in prompts:
            session, times = new_session(model), ThreeDrafts()
            if draft is not None:
                draft.follow(prompt)
            answer(session, prompt, sampling, Counted(times, source(session, times), counts))
        shares = counts[0] / np.maximum(counts[1], 1)
        found["right guesses by step"][name] = [round(float(one), 3) for one in shares[:-1]]
        found["tokens of a run with three guesses"][name] = round(float(shares[-1]), 2)
        say(f"{name}: {shares}")
    draft_layer.FIRST_POSITIONS, record = usual, MtpRecord()
    session, times, ratios, seconds, tokens, are_same = (
        new_session(model),
        StepTimes(),
        list[float](),
        [0.0, 0.0],
        0,
        True,
    )
    counts = np.zeros((2, STEPS + 1))
    for number, prompt in enumerate(prompts):
        told: dict[bool, tuple[list[int], float]] = {}
        for is_drafted in (number % 2 == 0, number % 2 == 1):
            session.clear()
            guesses = Counted(times, source(session, times), counts) if is_drafted else Guesses(StepTimes(), [])
            told[is_drafted] = answer(session, prompt, greedy, guesses)
        are_same = are_same and told[False][0] == told[True][0]
        if number:  # the first answers compile and lay out
            seconds = [old + told[bool(i)][1] for i, old in enumerate(seconds)]
            tokens += len(told[True][0])
            ratios.append(told[False][1] / told[True][1])
    found["same texts"] = are_same
    if ratios:
        found["gain"] = {
            "of all": round(seconds[0] / seconds[1], 3), "median": round(statistics.median(ratios), 3),
            "least": round(min(ratios), 3), "most": round(max(ratios), 3), "answers": len(ratios),
            "tokens/s without": round(tokens / seconds[0], 1),
            "tokens of a run": round(counts[0, -1] / counts[1, -1], 2),
        }  # fmt: skip
        found["guess ms"] = round(1e3 * (record.step_s if draft is None else draft._own.one_s), 3)
        found["further token of a run, relative to one"] = round(times._further, 2)
    for one in [model] if draft is None else [draft, model]:
        one.close()
    return found


def new_session(model: LoadedModel) -> ChatSession:
    session = ChatSession(model)
    session.adapt()  # as in a pause: a GPU prepares runs of several tokens
    return session


def answer(
    session: ChatSession, prompt: list[int], sampling: SamplingConfig, guesses: Guesses
) -> tuple[list[int], float]:
    """The answer's tokens, and the seconds after the first one."""
    session._guesses = lambda: guesses  # type: ignore[method-assign]
    events = list(session.generate(prompt, sampling))
    return [one.token_id for one in events if one.token_id is not None], events[-1].stats.decode_s


if __name__ == "__main__":
    raise SystemExit(main())
