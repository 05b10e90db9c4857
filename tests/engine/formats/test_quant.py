"""The tables of GGUF's tensor types against the gguf package, and against what PowerInfer's files meant in 2023."""

from __future__ import annotations

import gguf

from engine.formats.quant import BLOCK_SIZES, CODECS, GGML_TYPES, POWERINFER_TYPES, WITHDRAWN_TYPES


def test_numbers_are_those_of_the_format() -> None:
    theirs = {int(kind): kind.name.lower() for kind in gguf.GGMLQuantizationType}
    assert {number: theirs[number] for number in GGML_TYPES} == GGML_TYPES
    assert set(CODECS) <= set(GGML_TYPES.values())
    assert not set(WITHDRAWN_TYPES) & set(theirs)


def test_the_old_numbering_differs_in_three_numbers() -> None:
    assert {number: POWERINFER_TYPES[number] for number in (16, 17, 18)} == {16: "i8", 17: "i16", 18: "i32"}
    assert {number: name for number, name in POWERINFER_TYPES.items() if GGML_TYPES[number] == name} == {
        number: GGML_TYPES[number] for number in range(16) if number not in (4, 5)
    }
    assert max(POWERINFER_TYPES) == 18


def test_sizes_are_those_of_the_format() -> None:
    theirs = {kind.name.lower(): sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert {name: theirs[name] for name in BLOCK_SIZES} == BLOCK_SIZES
    assert set(BLOCK_SIZES) == set(GGML_TYPES.values())
