"""Makes tiny random encoders for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "sat", "##s", "on", "a", "mat", ".", "ß",
         "sse", "cafe", "##ing"]  # fmt: skip
SHAPE = {"vocab_size": 20, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
         "max_position_embeddings": 64}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "Bert": {}, "XLMRoberta": {"type_vocab_size": 1, "pad_token_id": 1}, "NomicBert": {},
}  # fmt: skip


def make_tiny_encoder(folder: Path, kind: str = "Bert") -> Any:
    """Save a random model with a vocabulary of words, and return transformers' model."""
    import tokenizers
    import torch
    import transformers

    config = getattr(transformers, f"{kind}Config")(**SHAPE, **KINDS[kind])
    torch.manual_seed(3)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    for values in model.parameters():
        values.data = 0.2 * torch.randn_like(values) + (0.5 if values.ndim == 1 else 0.0)
    model.save_pretrained(folder)
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece({word: i for i, word in enumerate(WORDS)}))
    backend.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.decoder = tokenizers.decoders.WordPiece()
    backend.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    backend.add_special_tokens(WORDS[:5])
    backend.save(str(folder / "tokenizer.json"))
    return model
