"""Families whose layers differ: heads of two shapes, FFNs of several widths, keys and values of another layer."""

from __future__ import annotations

from engine.model.families.varied.gemma3n import GEMMA3N
from engine.model.families.varied.gemma4 import GEMMA4
from engine.model.family.family import Family

VARIED: tuple[Family, ...] = (GEMMA3N, GEMMA4)
