"""Models to download, install and prepare: everything between a hub and `LoadedModel.load`."""
