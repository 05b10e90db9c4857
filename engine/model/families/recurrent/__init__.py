"""Families with gated delta nets or Mamba-2 in most layers: a state of fixed size instead of keys and values."""

from __future__ import annotations

from engine.model.families.recurrent.granite_hybrid import GRANITE_HYBRID
from engine.model.families.recurrent.nemotron_h import NEMOTRON_H
from engine.model.families.recurrent.qwen3_5 import QWEN3_5, QWEN3_5_MOE
from engine.model.families.recurrent.qwen3_next import QWEN3_NEXT
from engine.model.family.family import Family

RECURRENT: tuple[Family, ...] = (QWEN3_5, QWEN3_5_MOE, QWEN3_NEXT, NEMOTRON_H, GRANITE_HYBRID)
