"""The training of sparsify_small.py: a student that learns the next tokens of its model with fewer active neurons."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from sparsify_model import Llama, Tensor, last_norm, plain_layer, same_for_all, say, student_layer, wait
from torch.nn import functional


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


def run_plain(model: Llama, tokens: Tensor, programs: Programs) -> list[Tensor]:
    """The residual stream after each layer, f32 [B, T, D]."""
    found, rotations = [model.head[tokens].float()], model.rotations(tokens.shape[1])
    for i in range(model.n_layers):
        found.append(programs.plain(found[-1], model.layer(i), rotations, *same_for_all(model)))
    return found[1:]


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
