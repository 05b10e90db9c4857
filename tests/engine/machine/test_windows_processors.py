"""Cores of two kinds, out of what Windows answers; the records are laid out as its documentation says."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from engine.machine.cpu_and_ram import read_cpu
from engine.machine.windows_processors import Core, count_cores, parse_cores, read_cores


def record(efficiency_class: int, mask: int, group: int = 0, groups: int = 1, relationship: int = 0) -> bytes:
    affinities = struct.pack("<QHHHH", mask, group, 0, 0, 0) * max(1, groups)
    body = struct.pack("<BB20sH", int(mask.bit_count() > 1), efficiency_class, bytes(20), groups) + affinities
    return struct.pack("<II", relationship, 8 + len(body)) + body


# Six fast cores of two threads and eight slow ones of one, as a Core i7-12700H has.
HYBRID = b"".join(record(1, 0b11 << 2 * i) for i in range(6)) + b"".join(record(0, 1 << (12 + i)) for i in range(8))


def test_two_kinds_of_cores() -> None:
    cores = parse_cores(HYBRID)
    assert cores[0] == Core(1, frozenset({0, 1}))
    assert cores[-1] == Core(0, frozenset({19}))
    assert count_cores(cores, set(range(20))) == (14, 6)
    assert count_cores(cores, {0, 2, 4, 12}) == (4, 3)  # one thread of each is enough
    assert count_cores(cores, set(range(12, 20))) == (8, None)  # confined to slow ones: they are all alike


def test_cores_that_are_alike_and_processors_in_groups() -> None:
    alike = parse_cores(record(0, 1) + record(0, 2))
    assert count_cores(alike, {0, 1}) == (2, None)
    [core] = parse_cores(record(0, 0b101, group=1))
    assert core.processors == {64, 66}
    assert parse_cores(record(3, 1, groups=0)) == (Core(3, frozenset({0})),)


@pytest.mark.parametrize("answer", [b"", b"\0" * 7, b"\0" * 48, HYBRID[:40], struct.pack("<II", 0, 4)])
def test_what_is_cut_off_is_left_out(answer: bytes) -> None:
    assert parse_cores(answer) == ()


def test_records_of_another_kind_are_passed_over() -> None:
    assert parse_cores(record(1, 3, relationship=2) + record(0, 4)) == (Core(0, frozenset({2})),)
    assert parse_cores(HYBRID[:-1]) == parse_cores(HYBRID)[:-1]


def test_the_cpu_is_described_by_them(tmp_path: Path) -> None:
    cpu = read_cpu(None, tmp_path, range(20), parse_cores(HYBRID))
    assert (cpu.cores, cpu.threads, cpu.performance_cores) == (14, 20, 6)


def test_this_system_answers_or_has_none() -> None:
    assert all(core.processors for core in read_cores())
