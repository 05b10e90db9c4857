"""Finds models on the hub and downloads them."""
