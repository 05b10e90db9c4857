"""Folders of any name, all at once: a person's, of data, configuration, caches, temporary files, and the model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import ROOT
from samples.tiny_model import make_tiny_gguf
from support.systems import ON_WINDOWS

NAMES = (
    "My files",
    "Мои модели",
    "模型\u3000フォルダ",
    'it\'s 100% "mine" & #1; $HOME' if os.name == "posix" else "it's 100%",
)


@pytest.mark.parametrize("answers", [False, pytest.param(True, marks=pytest.mark.slow)])  # kernels may be compiled
def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: bool) -> None:
    odd = tmp_path.joinpath(*NAMES)
    if not ON_WINDOWS:  # there only the library opens paths over 259 characters on every account
        odd = odd.joinpath(("a long name " * 8).strip(), "b" * 120)
        assert len(str(odd)) > 260
    folders = {
        "HOME": "home",
        "TMPDIR": "tmp",
        "TEMP": "tmp",
        "TMP": "tmp",
        "LOCALAPPDATA": "local",
        "APPDATA": "roaming",
        "WIN_PD_OVERRIDE_LOCAL_APPDATA": "local",
        "WIN_PD_OVERRIDE_APPDATA": "roaming",
    }
    for name, place in {
        **folders,
        **{f"XDG_{kind}_HOME": kind for kind in ("DATA", "CACHE", "CONFIG", "STATE")},
    }.items():
        (odd / place).mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv(name, str(odd / place))
    model = make_tiny_gguf(odd / "模型 № 5.gguf")
    bundle = odd / "bundle ☕"
    engine = [sys.executable, "-P", "-m", "engine"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    commands = [
        ["convert", str(model), str(bundle), "--codec", "q8_0", "--json"],
        ["inspect", str(bundle), "--json"],
        ["list", "--json"],
    ]
    if answers:
        commands.append(["generate", str(bundle), "--prompt", "Grüße, 世界", "--max-tokens", "2", "--json"])
    for arguments in commands:
        done = subprocess.run([*engine, *arguments], env=environment, cwd=odd, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        for line in done.stdout.decode().splitlines():
            json.loads(line)
    assert (bundle / "manifest.json").is_file()
