"""The loaded model as the local API shows it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from engine.local_api.prompts import count_tokens
from engine.tool_calls.call_style import call_style

if TYPE_CHECKING:
    from engine.local_api.api_request import ApiRequest
    from engine.session.loaded_model import LoadedModel

_STARTED_AT = int(time.time())  # of this process, because a model's creation time is unknown


@dataclass(frozen=True, eq=False)
class ServedModel:
    """The model that answers."""

    model: LoadedModel

    @property
    def name(self) -> str:
        return self.model.name

    def answers_to(self, name: str) -> bool:
        """Return whether this is the model's name, or that of its folder or file, ignoring case."""
        return name.casefold() in (self.name.casefold(), self.model.opened.files.path.name.casefold())

    def values(self) -> dict[str, Any]:
        """Return the model as /v1/models lists it: with the fields of OpenAI's and of Anthropic's API, and own ones.

        Cost: renders the chat template several times when it is new.
        """
        model, template = self.model, self.model.tokenizer.template
        return {
            "id": self.name,
            "object": "model",
            "created": _STARTED_AT,
            "owned_by": "hearth",
            "type": "model",
            "display_name": self.name,
            "created_at": datetime.fromtimestamp(_STARTED_AT, UTC).isoformat(),
            "max_model_len": model.context,
            "context_length": model.context,
            "size_bytes": sum(model.opened.codecs.values()),
            "abilities": {
                "tools": template is not None and call_style(template).renders,
                "thinking": list(model.tokenizer.thinking.levels),
                "schema": bool(model.stop_token_ids),
            },
        }

    def count(self, api_request: ApiRequest) -> int:
        """Return the number of tokens in the prompt of a chat, as prompts.count_tokens."""
        return count_tokens(api_request, self.model)
