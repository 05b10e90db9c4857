"""Format rates, times and sizes with their units in the user's language."""

from __future__ import annotations

from app.translation import figure, tr

NARROW = "\u202f"  # narrow no-break space, between a number and its unit


def rate(tok_s: float | None) -> str:
    """Format a rate: one decimal below 100, none above, "–" if unknown."""
    if tok_s is None:
        return f"–{NARROW}tok/s"
    return f"{figure(tok_s, '.1f' if tok_s < 100 else '.0f')}{NARROW}tok/s"


def seconds(value: float | None) -> str:
    """Format a time: ms below 1 s, then 6.2 s, 1 min 20 s, 2 h 5 min."""
    if value is None:
        return "–"
    if value < 0.9995:
        return f"{value * 1000:.0f}{NARROW}ms"
    if value < 59.95:
        return f"{figure(value, '.1f')}{NARROW}s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60}{NARROW}min" + (f" {whole % 60}{NARROW}s" if whole % 60 else "")
    minutes = round(value / 60)
    return f"{minutes // 60}{NARROW}h" + (f" {minutes % 60}{NARROW}min" if minutes % 60 else "")


def memory_of(used: float | None, total: float | None) -> str:
    """Format used and total memory with one unit, "9.4 of 24 GB"; 1 GB of memory is 2^30 bytes."""
    if used is None or total is None:
        return "–"
    size = total / 2**30
    whole = figure(size, ".0f" if size >= 10 else ".1f")
    return tr("{used} of {total}\u202fGB", used=figure(used / 2**30, ".1f"), total=whole)


def gigabytes(n_bytes: float | None) -> str:
    """Format a size in GB of 10^9 bytes with one decimal (MB below 0.1 GB)."""
    if n_bytes is None:
        return "–"
    return f"{figure(n_bytes / 1e9, '.1f')}{NARROW}GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.0f}{NARROW}MB"
