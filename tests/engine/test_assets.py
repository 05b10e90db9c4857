"""Where the shipped files are found: beside the package in a checkout, inside it when installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import assets
from engine.errors import ModelNotFoundError


def test_a_checkout_has_them_beside_the_package() -> None:
    assert (assets.asset_root() / "models").is_dir()
    assert list(assets.starter_model().glob("*.gguf"))


def test_an_installed_package_has_them_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "engine" / "_assets").mkdir(parents=True)
    monkeypatch.setattr(assets, "__file__", str(tmp_path / "engine" / "assets.py"))
    assert assets.asset_root() == tmp_path / "engine" / "_assets"
    with pytest.raises(ModelNotFoundError, match="starter model"):
        assets.starter_model()
