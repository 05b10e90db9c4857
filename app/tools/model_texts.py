"""Texts for models about calls of tools and the notes of a project. They are in English for every model."""

from __future__ import annotations

REFUSED = "The user did not allow this call."
NOT_RUN = "This call was not run."
SEARCH_DOCUMENTS = "search_documents"  # the name of the tool
NOT_SENT = "The result is from documents that stay on the user's PC."  # to a server


def gone(name: str) -> str:
    """Return the result of a call of a tool that is not available."""
    return f"The tool {name} is not available now."


def failed(name: str) -> str:
    """Return the result of a call during which Hearth itself failed."""
    return f"The tool {name} failed. Its error is in Hearth's log."


def cut(text: str, most: int) -> str:
    """Return at most this many characters of a result, and how many were left out."""
    return text if len(text) <= most else f"{text[:most]}\n[{len(text) - most} more characters were left out.]"


def called(name: str, arguments: str) -> str:
    """Return a call as a text of the assistant's."""
    return f"[Called {name}: {arguments}]"


def result_of(name: str, text: str) -> str:
    """Return a result as a text of the assistant's."""
    return f"[Result of {name}: {text}]"


def notes(text: str, is_cut: bool) -> str:
    """Return the notes of a project as a part of the system message. is_cut: whether only their beginning fits."""
    rest = "\n[The notes go on, but the rest does not fit.]" if is_cut else ""
    return f"Notes of this project, which the user keeps:\n<notes>\n{text}{rest}\n</notes>"
