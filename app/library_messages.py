"""Messages for failed jobs of the library's process: titles by job, sentences by class of error.

Data for app/user_messages.py. A failed job does not affect the chats.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache

from app.engine_text import plain_figures
from app.translation import noted, tr


class ModelAction(StrEnum):
    """Actions of remedy buttons about finding and storing models."""

    OPEN_MODELS = "open-models"  # show the Models page
    REFRESH_MODELS = "refresh-models"  # repeat the failed job and reload everything from the library
    ENTER_TOKEN = "enter-token"  # ask for an access token for the hub


BUTTONS: dict[str, str] = {
    ModelAction.OPEN_MODELS: noted("Choose another model"),
    ModelAction.REFRESH_MODELS: noted("Try again"),
    ModelAction.ENTER_TOKEN: noted("Enter a token"),
}

# By job name. {model}: the model's display name.
TITLES: dict[str, str] = {
    "machine": noted("Couldn't read this PC's hardware"),
    "catalogue": noted("Couldn't read the catalogue of models"),
    "estimate": noted("Couldn't estimate {model}"),
    "library": noted("Couldn't read the list of models on this PC"),
    "downloads": noted("Couldn't read the list of downloads"),
    "search": noted("Couldn't search"),
    "look": noted("Couldn't open {model}"),
    "download": noted("Couldn't download {model}"),
    "pause": noted("Couldn't pause the download"),
    "resume": noted("Couldn't resume the download"),
    "cancel_download": noted("Couldn't cancel the download"),
    "remove_download": noted("Couldn't remove the download from the list"),
    "import": noted("Couldn't add the model"),
    "remove": noted("Couldn't delete {model}"),
    "restore": noted("Couldn't restore {model}"),
    "relocate": noted("Couldn't move the models"),
    "verify": noted("Couldn't check {model}"),
    "repair": noted("Couldn't repair {model}"),
    "prepare_plan": noted("Couldn't plan how to prepare {model}"),
    "prepare": noted("Couldn't prepare {model}"),
    "idle": noted("Couldn't train while the PC was idle"),
    "token": noted("Couldn't save the access token"),
    "measured": noted("Couldn't save the measured speed"),
    "update_look": noted("Couldn't look for updates"),
    "update_download": noted("Couldn't download the update"),
    "update_install": noted("Couldn't install the update"),
}

# By class name: the sentence; what replaces it if the error's message contains an internal name or does not begin
# with a file; and the remedies.
_AGAIN = (ModelAction.REFRESH_MODELS,)
SENTENCES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "EngineError": ("{fact}", noted("The details say why."), _AGAIN),
    "HubError": (
        noted("The hub did not answer properly. What was downloaded is kept. Try again later."), "", _AGAIN,
    ),
    "OfflineError": (
        noted("The hub cannot be reached. Connect to the network, or add a model file that is on this PC."), "", _AGAIN,
    ),
    "RepositoryNotFoundError": (
        noted("The hub has no model with that name, or it requires an access token. Check the name."), "",
        (ModelAction.ENTER_TOKEN, ModelAction.REFRESH_MODELS),
    ),
    "GatedModelError": (
        noted(
            "Its maker requires you to accept terms. Accept them on the model's page, then enter an access token."
        ),
        "", (ModelAction.ENTER_TOKEN, ModelAction.REFRESH_MODELS),
    ),
    "DownloadDamagedError": (
        noted("A downloaded file is damaged. Trying again downloads only that file."), "",
        _AGAIN,
    ),
    "UpdateError": ("{fact} {hint}", noted("Nothing was installed. The details say why."), ()),
    "LibraryError": ("{fact}", noted("The models folder could not be used. The details say why."), _AGAIN),
    "DiskSpaceError": (
        noted("{fact} Free some space there, or choose a folder on another disk."),
        noted("The disk is full. Free some space there, or choose a folder on another disk."), _AGAIN,
    ),
    "HostMemoryError": (
        noted("{fact} Close other programs."), noted("There is not enough free memory. Close other programs."), _AGAIN,
    ),
    "DeviceMemoryError": (
        noted("{fact} Close programs that use the GPU."),
        noted("There is not enough free memory on the GPU. Close programs that use it."), _AGAIN,
    ),
    "ModelNotFoundError": ("{fact}", noted("Its files were moved or deleted."), _AGAIN),
    "ModelFormatError": (
        noted("{file} is damaged or incomplete. Download it again, or use another model."),
        noted("One of the files is damaged or incomplete. Download it again, or use another model."), (),
    ),
    "UnsupportedModelError": ("{fact}", noted("The model is of a kind that Hearth does not run."), ()),
    "TokenizerMismatchError": (noted("The tokenizer beside the model's weights belongs to another model."), "", ()),
    "InvalidRequestError": ("{fact}", noted("It was requested with a value that is not allowed."), ()),
    "EngineProcessError": (
        noted("The model manager stopped unexpectedly and is restarting."), "", _AGAIN,
    ),
    "ProtocolError": (
        noted("Parts of Hearth have different versions. Install Hearth again."), "",
        _AGAIN,
    ),
}  # fmt: skip
BUG = noted("It didn't work. Your chats and models are safe.")

# What the library's process says in a sentence of its own, with places for names and reasons. The window shows it
# in the user's language. Those with a fixed text come first where another would fit, too.
FACTS = (
    noted("Couldn't store the access token in {place}: {why}."),
    noted("{what} cannot be deleted: {why}."),
    noted("The copy of {what} differs from the original."),
    noted("{what} cannot be written: {why}."),
    noted("Another Hearth is downloading."),
    noted("{what} may not be changed: {why}."),
    noted("The disk accepted no more data while {what} was written: {why}."),
    noted("{what} cannot be read: {why}."),
    noted("{what} differs from {source}."),
    noted("The starter model comes with Hearth and stays."),
    noted("{what} cannot be made: {why}."),
    noted(
        "The list of models was written by a newer Hearth: {what} has the version {found}, and this one knows {known}."
    ),
    noted("Another Hearth has been changing the list of models for too long."),
    noted("The models are being moved already."),
    noted("{what} exists already."),
    noted("{what} is not a folder."),
    noted("{what} is in the folder of {model}."),
    noted("The removed model has been deleted for good."),
    noted("There is a {what} again."),
    noted("There is a {what} in {folder} again."),
    noted("{what} cannot be put back: {why}."),
    noted("{what} is being prepared; one model at a time can be."),
    noted("The disk that holds {what} is full."),
)
# What the library says about a model that is on this PC.
REMARKS = (
    noted("Prepare it once to make it faster on this PC."),
    noted("Its file {what} is missing."),
    noted("Its file {what} has {size}; it had {before} when it was imported."),
    noted("Its folder {what} is not there. If it is on another disk, connect that."),
)


@cache
def _patterns(facts: tuple[str, ...]) -> list[tuple[re.Pattern[str], str]]:
    found = []
    for fact in sorted(facts, key=lambda one: one.count("{")):
        parts = re.split(r"(\{\w+\})", fact)
        pattern = "".join(f"(?P<{part[1:-1]}>.+?)" if part.startswith("{") else re.escape(part) for part in parts)
        found.append((re.compile(pattern, re.DOTALL), fact))
    return found


def remark(reason: str) -> str:
    """Return what the library says about an installed model, for the window."""
    return in_users_language(plain_figures(reason), REMARKS)


def in_users_language(sentence: str, facts: tuple[str, ...] = FACTS) -> str:
    """Return a sentence in the user's language if it is one of `facts` with its values filled in, else as it is."""
    for pattern, fact in _patterns(facts):
        if (match := pattern.fullmatch(sentence)) is not None:
            return tr(fact, **match.groupdict())
    return sentence
