"""Exceptions for every external failure that the engine can meet.

The message states what happened, with values; the hint says what to do next. Programming errors stay ordinary
exceptions and end in a crash report.
"""

from __future__ import annotations

import re

# Characters that control terminals or text direction, and lone surrogates, should a file's names contain them. Line
# ends stay.
_CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class EngineError(Exception):
    """An external failure.

    `message`: one sentence with the fact and the value; `hint`: the next step, in the imperative.
    """

    hint: str = "See the log."

    def __init__(self, message: str, hint: str | None = None) -> None:
        message = _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], message)
        super().__init__(message)
        self.message = message
        if hint is not None:
            self.hint = hint


class Cancelled(Exception):  # noqa: N818 - requested by the caller, not an error
    """Raised between two steps after the caller cancelled. No EngineError, because nothing failed."""


class ModelNotFoundError(EngineError):
    """The path or name leads to nothing that can be opened."""

    hint = "Check the path, or choose another model."


class ModelFormatError(EngineError):
    """A file is damaged or inconsistent."""

    hint = "Download the file again, or choose another model."


class UnsupportedModelError(EngineError):
    """The file is valid, but Hearth does not run this kind of model."""

    hint = "Choose a model of the LLaMA family."


class TokenizerMismatchError(ModelFormatError):
    """The tokenizer beside the weights belongs to another model."""

    hint = "Put the tokenizer.json of this very model beside its weights."


class ChatTemplateError(EngineError):
    """The model's chat template failed, or exceeded its limits of time or size."""

    hint = "Use the model's raw mode, or choose a model with a sound chat template."


class ContextOverflowError(EngineError):
    """The prompt alone is longer than the context."""

    hint = "Shorten the message or start a new chat."


class HostMemoryError(EngineError):
    """Not enough RAM."""

    hint = "Close other programs or choose a smaller model."


class DiskSpaceError(EngineError):
    """Not enough free disk space."""

    hint = "Free some space there, or choose a folder on another disk."


class HubError(EngineError):
    """The hub does not answer, or answers with a failure; the message has request and response."""

    hint = "Check the network and try again."


class OfflineError(HubError):
    """The hub is unreachable, or the environment forbids asking it."""

    hint = "Connect to the network, or import a model from this PC."


class RepositoryNotFoundError(HubError):
    """The hub has no such repository, revision or file, or hides it without a token."""

    hint = "Check the name; a private repository needs a token."


class GatedModelError(HubError):
    """The repository requires accepting its terms; the message says where."""

    hint = "Accept the terms on the model's page, then enter an access token."


class DownloadDamagedError(HubError):
    """A downloaded file differs from the hub's hash or size."""

    hint = "Download it again: only the damaged file is fetched."


class RemoteServerError(EngineError):
    """A server that the user chose for a chat does not answer properly."""

    hint = "Check the server's address, or answer on this PC."


class RemoteUnreachableError(RemoteServerError):
    """The server is unreachable, or the connection was lost."""

    hint = "Check the network, or answer on this PC."


class RemoteKeyError(RemoteServerError):
    """The server rejects the key, or requires one."""

    hint = "Enter another key."


class LibraryError(EngineError):
    """The list of installed models cannot be read or written, or forbids the request."""

    hint = "Check the models folder."


class UpdateError(EngineError):
    """An update was refused, or could not be fetched or installed.

    kind: none (not offered), unreachable, address (no HTTPS), size, cut off, damaged, signature, expired, rollback,
    platform, hash, disk, install, busy (another process does it).
    """

    hint = "Nothing was installed. Try again later."

    kind: str = ""

    @classmethod
    def of(cls, kind: str, message: str, hint: str = "") -> UpdateError:
        """Return an error of a kind. hint: "" for the usual one."""
        error = cls(message, hint or None)
        error.kind = kind
        return error


class DeviceMemoryError(EngineError):
    """Not enough VRAM."""

    hint = "Close programs that use the GPU, or choose a smaller model."


class DeviceUnavailableError(EngineError):
    """The requested device cannot be used; the message lists the reasons."""

    hint = "Use --device cpu."


class DeviceFailedError(EngineError):
    """The GPU failed or stopped answering while computing."""

    hint = "Load the model again; if it happens again, use --device cpu."


class KernelUnavailableError(EngineError):
    """No kernel of the requested kind runs on this machine; the message lists the reasons."""

    hint = "Use the reference backend."


class ArtifactMismatchError(EngineError):
    """An artefact was made from another model, machine or version."""

    hint = "Make it again."


class InvalidRequestError(EngineError):
    """A value from the caller is out of range; the message names value and range."""

    hint = "Correct the value."


class ServerError(EngineError):
    """The local API cannot be served: its port is taken or forbidden, or this engine has no local API."""

    hint = "Choose another port."


class EngineProcessError(EngineError):
    """The engine's process died or stopped answering."""

    hint = "It starts again by itself; send the message again."


def error_class(name: str) -> type[EngineError]:
    """Return the EngineError class of that name; EngineError for a name from another version."""

    def walk(cls: type[EngineError]) -> type[EngineError] | None:
        if cls.__name__ == name:
            return cls
        return next((found for sub in cls.__subclasses__() if (found := walk(sub))), None)

    return walk(EngineError) or EngineError
