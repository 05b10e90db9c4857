"""Hearth's engine as a library. Names load on first use; importing it costs at most NumPy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.config import EngineConfig, ModelConfig, SamplingConfig
    from engine.errors import EngineError
    from engine.machine.hardware import HardwareProfile
    from engine.session.chat_session import ChatSession
    from engine.session.generate import TokenEvent
    from engine.session.loaded_model import LoadedModel

__version__ = "0.1.0"
__all__ = [
    "ChatSession",
    "EngineConfig",
    "EngineError",
    "HardwareProfile",
    "LoadedModel",
    "ModelConfig",
    "SamplingConfig",
    "TokenEvent",
]

_HOMES = {
    "ChatSession": "engine.session.chat_session",
    "EngineConfig": "engine.config",
    "EngineError": "engine.errors",
    "HardwareProfile": "engine.machine.hardware",
    "LoadedModel": "engine.session.loaded_model",
    "ModelConfig": "engine.config",
    "SamplingConfig": "engine.config",
    "TokenEvent": "engine.session.generate",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'engine' has no attribute {name!r}")
