"""The script behind docs/placement.md: models with the bytes of real files, curves with the coverage that they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from make_model import Recipe, make_model
from model_shapes import SHAPES
from placements import (
    CASES,
    CORE_BYTES_PER_S,
    DOCS,
    LANE_HITS,
    LANE_MACHINES,
    PUBLISHED,
    Row,
    activity,
    lane_gain,
    lane_table,
    sizes,
    solved,
    table,
)

from engine.model.model_files import open_model
from engine.placement.model_bytes import ModelBytes


@pytest.mark.parametrize("shape", ["tiny", "opt-tiny", "falcon-tiny"])
@pytest.mark.parametrize("codec", ["f16", "q4_0"])
def test_a_shape_has_the_bytes_of_its_file(tmp_path: Path, shape: str, codec: str) -> None:
    make_model(tmp_path / "m.gguf", Recipe(shape, codec, "powerinfer", rank=64))
    real, planned = ModelBytes.of(open_model(tmp_path / "m.gguf")), sizes(SHAPES[shape], codec)
    np.testing.assert_array_equal(planned.neuron, real.neuron)
    assert planned.total == pytest.approx(real.total, rel=0.02)  # but for biases and vectors
    assert (planned.kv_of_layer(100, "f16") == real.kv_of_layer(100, "f16")).all()
    assert planned.neurons == real.neurons


@pytest.mark.parametrize("case", [*CASES, *PUBLISHED], ids=lambda case: f"{case.name}-{case.covered}")
def test_curves_carry_what_they_say(case: object) -> None:
    small = SHAPES["tiny"]
    of = activity(case, small, dense=False)  # type: ignore[arg-type]
    fired = np.sort(of.fired[0])[::-1]
    hottest = round(case.covered * len(fired))  # type: ignore[attr-defined]
    assert fired.mean() == pytest.approx(case.fired, rel=1e-3)  # type: ignore[attr-defined]
    assert fired[:hottest].sum() / fired.sum() == pytest.approx(0.8, abs=0.01)


def test_a_row_of_the_table() -> None:
    row = solved(CASES[0], "INT4", "pc-low")
    assert row.fits == "gpu"
    assert row.gpu_load == 1
    assert row.tok_s is not None
    assert row.dense_tok_s is not None
    assert row.tok_s > row.dense_tok_s
    assert "| pc-low | OPT-6.7B INT4 | 3.7 GB | on the GPU | 100% | 100% |" in table([row])
    assert table([Row("OPT-175B", "FP16", "pc-low", 349.2, "no")]).endswith("no | – | – | – | – | – |")


def test_the_gpu_reads_missed_experts_with_profit_only_where_a_core_is_slow() -> None:
    assert f"<!-- lane -->\n{lane_table()}\n<!-- end of lane -->" in DOCS.read_text(encoding="utf-8")
    for codec in CORE_BYTES_PER_S:
        gains = [[lane_gain(one, codec, hits, rate) for one in LANE_MACHINES for hits in LANE_HITS]
                 for rate in (7e9, 1e10, 2e10)]  # fmt: skip
        assert max(gains[0]) > 0.2, "arithmetic limits the CPU"
        assert max(gains[1]) < 0.05
        assert max(gains[2]) == 0, "RAM limits both"
