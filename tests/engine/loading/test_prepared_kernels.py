"""What a model needs is compiled, or fetched from where it was kept, while it is loaded: no answer waits for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from samples.tiny_model import make_tiny_model

# In a process of its own, where no other test has had a kernel compiled.
ANSWER = """
import sys
from engine.config import EngineConfig
from engine.session.generate import prefill
from engine.model.kv_cache import KVCache
from engine.session.loaded_model import LoadedModel
from native_kernels.cpu.runtime import jit
loaded = LoadedModel.load(sys.argv[1], EngineConfig(context=64, threads=2, mode=sys.argv[2]))
late, fetch = [], jit.Kernel._load
jit.Kernel._load = lambda kernel: late.append(kernel.name) or fetch(kernel)
model = loaded.transformer()
cache = KVCache(model.config, 64, loaded.kv_codec)
for tokens in ([5] * 50, [7], [3, 4]):
    prefill(model, tokens, cache)
print(late)
"""


@pytest.mark.parametrize("mode", ["exact", "dense"])
def test_nothing_is_compiled_for_the_first_prompt(mode: str, tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path / "m")
    command = [sys.executable, "-c", ANSWER, str(path), mode]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
