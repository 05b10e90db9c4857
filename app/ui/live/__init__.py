"""The live page: the machine and the model at work."""
