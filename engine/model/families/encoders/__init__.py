"""Families of encoders: models that turn a text into a vector and never continue it."""

from __future__ import annotations

from engine.model.families.encoders.bert import BERT, XLM_ROBERTA
from engine.model.families.encoders.nomic_bert import NOMIC_BERT
from engine.model.family.family import Family

ENCODERS: tuple[Family, ...] = (BERT, XLM_ROBERTA, NOMIC_BERT)
