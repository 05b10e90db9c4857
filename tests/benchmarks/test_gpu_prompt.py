"""How the figures of a question on the GPU are told."""

from __future__ import annotations

import gpu_prompt


def test_a_question_is_told_kernel_by_kernel() -> None:
    words = gpu_prompt.in_words(
        {
            "model": "m", "device": "all of it", "tokens": 512, "seconds": 0.4, "marked_seconds": 0.5,
            "cold_bytes": 10e9, "bus_bytes_per_s": 50e9, "way": "in place",
            "kernels": {"round_rows": {"calls": 4, "seconds": 0.1}, "multiply_rows": {"calls": 2, "seconds": 0.3}},
            "gathering": {"gather_rows": {"calls": 5, "seconds": 0.2}},
        }
    )  # fmt: skip
    lines = words.splitlines()
    assert "512 tokens in 400 ms, with marks 500" in lines[0]
    assert "10.0 GB, 200 ms over the bus; they came by: in place" in lines[1]
    assert [line.split()[0] for line in lines[2:5]] == ["multiply_rows", "round_rows", "gather_rows"]
    assert "2 x 150000.0 us =   300.0 ms (60%)" in lines[2]
    assert "waited 100.0 ms (20%)" in lines[5]
