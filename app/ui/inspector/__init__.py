"""The inspector: the tokens of an answer and what each of them cost."""
