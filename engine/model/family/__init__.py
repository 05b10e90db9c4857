"""Parts to describe a model family with: its tensors' names and layout, its configuration's keys, its positions."""
