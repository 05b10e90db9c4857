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
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sparsify_model import BEGAN, Llama, Tensor, last_norm, plain_layer, same_for_all, say, tested_layer, wait
from sparsify_text import prepare, write_texts
from sparsify_training import Programs, Settings, Trainer
from torch.nn import functional

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from engine.formats.gguf import open_gguf  # noqa: E402 - found by the line above
from native_kernels.codecs import CODECS  # noqa: E402 - found by the line above

HELD_OUT = 0.05  # of the written sequences, for evaluation
PART_BYTES = 15 << 20  # of a file of the student
SHARES = (0.5, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1)  # of the curve


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
