"""The Live page: the machine and the model at work."""
