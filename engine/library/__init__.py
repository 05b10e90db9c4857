"""Models to be had, fetched, owned and prepared: what lies between a hub and `LoadedModel.load`."""
