"""Two published models beside llama.cpp from the same files: ids, chat template, logits and perplexity.

They are installed aside, as packages that carry GGUF files: 100 and 250 MB.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_llama_cpp
from support.published_models import PACKAGES, installed
from test_llama_cpp import ours, root_mean_square

from engine.model.model_files import open_model
from engine.text.tokenizer import Tokenizer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed"),
]
TEXT = Path(__file__).resolve().parents[3] / "docs" / "how-it-works.md"
N_TOKENS = 256


def perplexity(logits: np.ndarray, ids: np.ndarray) -> float:
    ahead = logits[:-1].astype(np.float64)
    ahead -= ahead.max(axis=1, keepdims=True)
    likely = ahead - np.log(np.exp(ahead).sum(axis=1, keepdims=True))
    return float(np.exp(-likely[np.arange(len(ids) - 1), ids[1:]].mean()))


def chat_ids(model: Any) -> list[int]:
    """llama.cpp's ids of one question in the file's own template."""
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    template = model.metadata["tokenizer.chat_template"]
    shown = Jinja2ChatFormatter(template=template, eos_token="", bos_token="")
    prompt = shown(messages=[{"role": "user", "content": "What is the capital of Peru?"}]).prompt
    ids: list[int] = model.tokenize(prompt.encode(), add_bos=False, special=True)
    return ids


@pytest.mark.parametrize("name", PACKAGES)
def test_a_published_model_is_that_of_llama_cpp(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import llama_cpp

    path, text = installed(PACKAGES[name], tmp_path), TEXT.read_text(encoding="utf-8")[:2500]
    tokenizer = Tokenizer.from_gguf(open_model(path).source.metadata)
    model = llama_cpp.Llama(
        str(path), n_ctx=512, n_batch=512, n_ubatch=512, logits_all=True, type_k=0, type_v=0, flash_attn=False,
        verbose=False,
    )  # fmt: skip
    try:
        ids = model.tokenize(text.encode(), add_bos=True, special=False)
        assert tokenizer.encode(text, add_bos=ids[0] == model.token_bos()) == ids
        if "tokenizer.chat_template" in model.metadata:
            tokenizer.use_template(name)
            assert tokenizer.encode_chat([{"role": "user", "content": "What is the capital of Peru?"}]) == chat_ids(
                model
            )
        fed = np.array(ids[:N_TOKENS])
        model.eval(fed.tolist())
        theirs = np.array(model.scores[: len(fed)], np.float32)
    finally:
        model.close()
    monkeypatch.setattr(test_llama_cpp, "CONTEXT", 512)
    found = ours(path, fed, [len(fed)])
    share = root_mean_square(found - theirs) / root_mean_square(theirs)
    alike = float((found.argmax(axis=1) == theirs.argmax(axis=1)).mean())
    mine, other = perplexity(found, fed), perplexity(theirs, fed)
    print(f"{name}: {share:.2%} of the logits' size apart, {alike:.1%} alike, perplexity {mine:.3f} and {other:.3f}")
    assert share < 0.05  # llama.cpp rounds what goes into products to 8 bits
    assert alike > 0.9
    assert mine == pytest.approx(other, rel=0.02)
