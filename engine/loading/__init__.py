"""What a load decides before the GPU has its share: tokenizer, context, backend and mode."""
