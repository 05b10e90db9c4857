"""The loaded model as the local API shows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.server.prompts import count_tokens

if TYPE_CHECKING:
    from engine.server.api_request import ApiRequest
    from engine.session.loaded_model import LoadedModel

_STARTED_AT = int(time.time())  # of this process, because a model's creation time is unknown


@dataclass(frozen=True)
class ServedModel:
    """The model's properties. folder: the last part of its path, which is also accepted as a name."""

    name: str
    folder: str
    context: int  # tokens
    count: Callable[[ApiRequest], int]  # tokens of a prompt, as prompts.count_tokens

    @classmethod
    def of(cls, model: LoadedModel) -> ServedModel:
        return cls(model.name, model.opened.files.path.name, model.context, lambda asked: count_tokens(asked, model))

    @property
    def values(self) -> dict[str, Any]:
        """Return the model as /v1/models lists it."""
        return {
            "id": self.name, "object": "model", "created": _STARTED_AT, "owned_by": "hearth",
            "max_model_len": self.context,
        }  # fmt: skip

    def answers_to(self, name: str) -> bool:
        """Return whether this is the model's name, ignoring case."""
        return name.casefold() in (self.name.casefold(), self.folder.casefold())
