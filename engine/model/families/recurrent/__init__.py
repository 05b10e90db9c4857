"""Families whose layers mostly keep a state of fixed size: gated delta nets, Mamba-2, short convolutions."""

from __future__ import annotations

from engine.model.families.recurrent.granite_hybrid import GRANITE_HYBRID
from engine.model.families.recurrent.lfm2 import LFM2, LFM2_MOE
from engine.model.families.recurrent.nemotron_h import NEMOTRON_H
from engine.model.families.recurrent.qwen3_5 import QWEN3_5, QWEN3_5_MOE
from engine.model.families.recurrent.qwen3_next import QWEN3_NEXT
from engine.model.family.family import Family

RECURRENT: tuple[Family, ...] = (QWEN3_5, QWEN3_5_MOE, QWEN3_NEXT, NEMOTRON_H, GRANITE_HYBRID, LFM2, LFM2_MOE)
