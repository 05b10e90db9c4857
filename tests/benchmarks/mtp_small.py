"""Train a layer that drafts tokens (MTP) for a small model on one GPU, and count its accepted drafts in the engine.

    python tests/benchmarks/mtp_small.py [MODEL.gguf] --out FOLDER [--write-s 60] [--train-s 80] [--answers 24]
    python tests/benchmarks/mtp_small.py [MODEL.gguf] --out FOLDER --layer FOLDER/layer.npz    (step 3 alone)

MODEL: the starter model, or another LLaMA model with ReLU and tied embeddings. Needs PyTorch beside the engine.

1. The model writes chats about short requests, at temperature 1.
2. A layer of the model's shape, begun as a copy of its last one, learns the model's distribution of the token after the
   next one (KL divergence), and from its own hidden state those of the two tokens after that. The model stays as it is.
3. The model with the layer, in F16, answers other requests in the engine, on the CPU: the share of right drafts at the
   first, second and third step, greedily and sampled, and with the end of the prompt alone; and tokens/s with and
   without drafts.

Written to --out: mtp_small.json, layer.npz. Takes about four minutes with the defaults on an H100.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
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
from sparsify_text import REQUESTS, SUBJECTS, listed  # noqa: E402

from engine.config import EngineConfig, SamplingConfig  # noqa: E402
from engine.formats.gguf import open_gguf  # noqa: E402
from engine.loading.opening import read_tokenizer  # noqa: E402
from engine.model import draft_layer, families  # noqa: E402
from engine.model.family.names import GGUF_DRAFTS  # noqa: E402
from engine.model.model_files import open_model  # noqa: E402
from engine.session.chat_session import ChatSession  # noqa: E402
from engine.session.guesses import Guesses, StepTimes  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402
from engine.session.mtp import MtpGuesser, MtpRecord  # noqa: E402

LENGTH, SEQUENCES, STEPS = 320, 256, 3
OWN = ("draft.project", "draft.embedding_norm", "draft.hidden_norm", "draft.final_norm")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(ROOT / "assets/models/starter-chat/starter-chat-q8_0.gguf"))
    parser.add_argument("--out", required=True)
    parser.add_argument("--write-s", type=float, default=60)
    parser.add_argument("--train-s", type=float, default=80)
    parser.add_argument("--answers", type=int, default=24)
    parser.add_argument("--layer", type=Path, help="a layer that was trained before")
    flags = parser.parse_args()
    device, out = "cuda" if torch.cuda.is_available() else "cpu", Path(flags.out)
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    opened = open_model(Path(flags.model))
    tokenizer = read_tokenizer(opened, None)
    shuffled = [one.format(subject) for one in listed(REQUESTS) for subject in listed(SUBJECTS)]
    random.Random(0).shuffle(shuffled)
    prompts = [tokenizer.encode_chat([{"role": "user", "content": one}]) for one in shuffled]
    tests, prompts = prompts[: flags.answers], prompts[flags.answers :]
    found: dict[str, Any] = {"model": opened.name, "date": time.strftime("%Y-%m-%d")}
    if flags.layer is None:
        model = Llama.read(Path(flags.model), device)
        ends = set(tokenizer.stop_token_ids) | set(opened.config.eos_token_ids)
        texts = written(model, prompts, ends, flags.write_s)
        say(f"{texts.numel()} tokens written")
        made, found["losses"] = trained(model, texts, flags.train_s)
        found["tokens"] = texts.numel()
        np.savez(out / "layer.npz", **{name: one.half().cpu().numpy() for name, one in made.items()})
    with np.load(flags.layer or out / "layer.npz") as stored:
        layer = {name: stored[name].astype(np.float32) for name in stored.files}
    path = joined(Path(flags.model), layer, out / "with_drafts.gguf")
    found |= measured(path, tests)
    (out / "mtp_small.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    path.unlink()
    return 0


def relu_layer(model: Llama, w: list[Tensor], x: Tensor) -> Tensor:
    """A layer with ReLU: x f32 [B, T, D] to the same."""
    x = attention(x, w, model.rotations(x.shape[1]), *same_for_all(model))
    before = norm(x, w[5], model.epsilon)
    hidden = linear(before, w[6], model.dtype).relu() * linear(before, w[7], model.dtype)
    return x + linear(hidden, w[8], model.dtype).float()


@torch.no_grad()
def hidden_of(model: Llama, tokens: Tensor) -> Tensor:
    """The head's inputs [B, T, D]."""
    x = model.head[tokens].float()
    for i in range(model.n_layers):
        x = relu_layer(model, model.layer(i), x)
    return last_norm(model, x).unflatten(0, tokens.shape)


@torch.no_grad()
def written(model: Llama, prompts: Sequence[list[int]], ends: set[int], seconds: float) -> Tensor:
    """Texts [N, LENGTH] by the model: chats one after the other."""
    found, end, asked = [], time.perf_counter() + seconds, iter(prompts * 1000)
    while not found or time.perf_counter() < end:
        tokens = torch.zeros((SEQUENCES, LENGTH), dtype=torch.long, device=model.device)
        given = [list(next(asked)) for _ in range(SEQUENCES)]
        tokens[:, 0] = torch.tensor([one.pop(0) for one in given])
        for at in range(1, LENGTH):
            last = hidden_of(model, tokens[:, :at])[:, -1]
            chosen = linear(last, model.head, model.dtype).float().softmax(-1).multinomial(1)[:, 0].tolist()
            for i, script in enumerate(given):
                if not script and int(tokens[i, at - 1]) in ends:
                    script += next(asked)
            tokens[:, at] = torch.tensor([one.pop(0) if one else own for one, own in zip(given, chosen, strict=True)])
        found.append(tokens)
    return torch.cat(found)


def trained(model: Llama, texts: Tensor, seconds: float) -> tuple[dict[str, Tensor], list[float]]:
    """The layer's tensors by GGUF name, and the mean KL divergences of the steps in the end."""
    n, width = model.n_layers, model.head.shape[1]
    own = {f"blk.{n}.{name}.weight": one.clone() for name, one in zip(PER_LAYER, model.layer(n - 1), strict=True)}
    names = {key: GGUF_DRAFTS[key].format(n) for key in OWN}
    half = 0.5 * torch.eye(width, device=model.device)
    own[names["draft.project"]] = torch.cat([half, half], dim=1)
    own |= {names[key]: torch.ones(width, device=model.device) for key in OWN[1:3]}
    own[names["draft.final_norm"]] = model.weights["output_norm.weight"].clone()
    for one in own.values():
        one.requires_grad_(True)
    w = [own[f"blk.{n}.{name}.weight"] for name in PER_LAYER]
    project, of_embedding, of_hidden, final = (own[names[key]] for key in OWN)
    optimiser = torch.optim.AdamW(own.values(), 1e-3, betas=(0.9, 0.95), weight_decay=0.0)
    began, steps, recent = time.perf_counter(), 0, [0.0] * STEPS
    while (share := (time.perf_counter() - began) / seconds) < 1:
        for group in optimiser.param_groups:
            group["lr"] = 1.5e-3 * min(1, (steps + 1) / 50) * max(0.02, 1 - share)
        tokens = texts[torch.randint(len(texts), (32,), device=texts.device)]
        with torch.no_grad():
            hidden = hidden_of(model, tokens)
            wanted = linear(hidden, model.head, model.dtype).float().log_softmax(-1)
        state, losses = hidden.float(), []
        for step in range(STEPS):  # position p of the state is text position p + step
            state = state[:, :-1]
            embedded = norm(model.head[tokens[:, step + 1 :]].float(), of_embedding, model.epsilon)
            both = torch.cat([embedded, norm(state, of_hidden, model.epsilon)], dim=-1)
            x = relu_layer(model, w, linear(both, project, model.dtype).float())
            state = norm(x, final, model.epsilon)
            drafts = linear(state, model.head, model.dtype).float().log_softmax(-1)
            losses.append(functional.kl_div(drafts, wanted[:, step + 1 :], reduction="sum", log_target=True)
                          / drafts.shape[:2].numel())  # fmt: skip
        optimiser.zero_grad()
        sum(0.8**step * loss for step, loss in enumerate(losses)).backward()  # type: ignore[union-attr]
        torch.nn.utils.clip_grad_norm_(own.values(), 1.0)
        optimiser.step()
        steps += 1
        recent = [0.98 * one + 0.02 * float(loss.detach()) for one, loss in zip(recent, losses, strict=True)]
        if steps % 200 == 0:
            say(f"{steps} steps, KL {', '.join(f'{one:.3f}' for one in recent)}")
    return {name: one.detach() for name, one in own.items()}, [round(one, 4) for one in recent]


def joined(source: Path, layer: dict[str, np.ndarray], path: Path) -> Path:
    """The model and the layer in one file, in F16."""
    opened = open_gguf(source)
    tensors = {name: opened.read_f32(name) for name in opened.tensors} | layer
    stored = {name: one.astype("<f2" if one.ndim > 1 else "<f4") for name, one in tensors.items()}
    metadata = {key: one.tolist() if isinstance(one, np.ndarray) else one for key, one in opened.metadata.items()}
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


def measured(path: Path, prompts: Sequence[list[int]]) -> dict[str, Any]:
    """Run the model in the engine."""
    llama = next(one for one in families.FAMILIES if one.name == "llama")
    assert llama.gguf is not None
    with_drafts = replace(llama, drafts=True, gguf=replace(llama.gguf, drafts=GGUF_DRAFTS))
    families.FAMILIES = tuple(with_drafts if one is llama else one for one in families.FAMILIES)
    model = LoadedModel.load(path, EngineConfig(device="cpu", context=1024, mode="dense"))
    say(model.drafts_reason)
    greedy, sampled = SamplingConfig(temperature=0, max_tokens=120), SamplingConfig(seed=1, max_tokens=120)
    found: dict[str, Any] = {"right drafts by step": {}, "threads": model.threads}
    usual = draft_layer.FIRST_POSITIONS
    ways = {"greedy": (greedy, usual), "sampled": (sampled, usual), "8 tokens of the prompt": (greedy, 8)}
    for name, (sampling, first) in ways.items():
        draft_layer.FIRST_POSITIONS = first
        record = MtpRecord()
        for prompt in prompts:
            session = ChatSession(model)
            answer(session, prompt, sampling, Guesses(ThreeDrafts(), [source(session, record)]))
        shares = record._step_right[:STEPS] / np.maximum(record._step_seen[:STEPS], 1)
        found["right drafts by step"][name] = [round(float(one), 3) for one in shares]
        say(f"{name}: {found['right drafts by step'][name]}")
    draft_layer.FIRST_POSITIONS = usual
    record, with_drafts_s, without_s, tokens, texts = MtpRecord(), 0.0, 0.0, 0, []
    session = ChatSession(model)
    times = session._times
    for prompt in prompts:
        for is_drafted in (False, True):
            session.forget()
            guesses = Guesses(times, [source(session, record)] if is_drafted else [])
            ids, seconds = answer(session, prompt, greedy, guesses)
            texts.append(ids)
            if len(texts) > 2:  # the first answers compile and lay out
                with_drafts_s += seconds if is_drafted else 0.0
                without_s += 0.0 if is_drafted else seconds
        tokens += len(texts[-1]) if len(texts) > 2 else 0
    found["same texts"] = texts[::2] == texts[1::2]
    found["tokens/s with drafts, without"] = [round(tokens / with_drafts_s, 1), round(tokens / without_s, 1)]
    model.close()
    return found


def source(session: ChatSession, record: MtpRecord) -> MtpGuesser:
    drafter, trail = session.model.drafter, session.cache.trail
    assert drafter is not None
    assert trail is not None
    return MtpGuesser(drafter, trail, record)


def answer(
    session: ChatSession, prompt: list[int], sampling: SamplingConfig, guesses: Guesses
) -> tuple[list[int], float]:
    """The answer's tokens, and the seconds after the first one."""
    session._guesses = lambda: guesses  # type: ignore[method-assign]
    events = list(session.generate(prompt, sampling))
    return [one.token_id for one in events if one.token_id is not None], events[-1].stats.decode_s


if __name__ == "__main__":
    raise SystemExit(main())
