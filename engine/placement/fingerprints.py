"""Fingerprints of a placement's inputs. A placement is solved again if one of them changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from engine.config import Mode
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import HardwareProfile
from engine.machine.read_rates import ReadRates
from engine.placement.model_bytes import PredictorBytes
from engine.sparsity.stats import NeuronStats


def of_stats(stats: NeuronStats) -> str:
    return _digest(stats.counts.tobytes(), stats.tokens)


def of_predictors(predictors: PredictorBytes) -> str:
    """Fingerprint the predictors' sizes and selected shares."""
    return _digest(
        predictors.held.tolist(),
        predictors.read.tolist(),
        predictors.codecs,
        predictors.active_share,
        predictors.is_true_gate.tolist(),
        *([] if predictors.expected_to_fired is None else [predictors.expected_to_fired]),
    )


def of_hardware(
    profile: HardwareProfile, gpu: GpuInfo | None, threads: int, read_rates: Mapping[Mode, ReadRates]
) -> str:  # fmt: skip
    """Fingerprint the hardware that a placement depends on. Free memory is in the budgets instead."""
    described = None
    if gpu is not None:
        described = {
            name: value
            for name, value in asdict(gpu).items()
            if name not in ("free_bytes", "index", "driver", "reasons")
        }
    timed = [{mode: asdict(rates) for mode, rates in read_rates.items()}] if read_rates else []
    return _digest(asdict(profile.cpu), threads, described, profile.sync_s, *timed)


def _digest(*parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode())
    return digest.hexdigest()
