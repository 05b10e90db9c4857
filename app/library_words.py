"""How the jobs of the library's process read when they do not come off: titles by job, sentences by class of failure.

Data for app/user_messages.py, which puts them together. A job is work beside a chat: its failure leaves chats alone.
"""

from __future__ import annotations

from enum import StrEnum


class ModelAction(StrEnum):
    """What a remedy button asks for, of those that have to do with finding and keeping models."""

    OPEN_MODELS = "open-models"  # show the Models page
    REFRESH_MODELS = "refresh-models"  # do again what did not come off, and ask the library for everything anew
    ENTER_TOKEN = "enter-token"  # ask for an access token of the hub


BUTTONS: dict[str, str] = {
    ModelAction.OPEN_MODELS: "Choose another model",
    ModelAction.REFRESH_MODELS: "Try again",
    ModelAction.ENTER_TOKEN: "Enter a token",
}

# By the name of the job. {model}: the model's display name.
TITLES: dict[str, str] = {
    "machine": "This PC was not looked at",
    "catalogue": "The models to choose from were not read",
    "estimate": "No estimate was made for {model}",
    "library": "The models on this PC were not read",
    "downloads": "The downloads were not read",
    "search": "The search was not made",
    "look": "{model} was not looked into",
    "download": "{model} was not downloaded",
    "pause": "The download was not paused",
    "resume": "The download did not go on",
    "cancel_download": "The download was not ended",
    "forget_download": "The download stays on the list",
    "import": "The model was not imported",
    "remove": "{model} was not deleted",
    "restore": "{model} did not come back",
    "relocate": "The models were not moved",
    "verify": "{model} was not checked",
    "repair": "{model} was not repaired",
    "prepare_plan": "It is not known what preparing {model} would bring",
    "prepare": "{model} was not prepared",
    "idle": "Nothing was trained in idle time",
    "token": "The access token was not kept",
    "measured": "The rate was not kept",
}

# By class name: the sentence, what takes its place where the fact holds a name from inside, and what can be pressed.
_AGAIN = (ModelAction.REFRESH_MODELS,)
SENTENCES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "EngineError": ("{fact}", "It could not be done; the details say why.", _AGAIN),
    "HubError": ("The hub does not answer as it should. What was downloaded is kept. Try again later.", "", _AGAIN),
    "OfflineError": (
        "The hub cannot be reached. Connect to the network, or import a model that lies on this PC.", "", _AGAIN,
    ),
    "RepositoryNotFoundError": (
        "The hub has nothing of that name, or shows it only to those with an access token. Check the name.", "",
        (ModelAction.ENTER_TOKEN, ModelAction.REFRESH_MODELS),
    ),
    "GatedModelError": (
        "Its makers give it to those who accepted their terms. Accept them on its page, then enter an access token.",
        "", (ModelAction.ENTER_TOKEN, ModelAction.REFRESH_MODELS),
    ),
    "DownloadDamagedError": (
        "A file came down with other contents than it should have. Trying again fetches that file alone.", "", _AGAIN,
    ),
    "LibraryError": ("{fact}", "The models folder does not allow it; the details say why.", _AGAIN),
    "DiskSpaceError": (
        "{fact} Free some space there, or choose a folder on another disk.",
        "The disk is full. Free some space there, or choose a folder on another disk.", _AGAIN,
    ),
    "HostMemoryError": (
        "{fact} Close other programs.", "There is not enough free memory. Close other programs.", _AGAIN,
    ),
    "DeviceMemoryError": (
        "{fact} Close programs that use the graphics card.",
        "There is not enough free memory on the graphics card. Close programs that use it.", _AGAIN,
    ),
    "ModelNotFoundError": ("{fact}", "It is no longer where it was.", _AGAIN),
    "ModelFormatError": ("One of the files is damaged or incomplete. Fetch it again, or use another model.", "", ()),
    "UnsupportedModelError": ("{fact}", "The model is of a kind that Hearth does not run.", ()),
    "TokenizerMismatchError": ("The tokenizer beside the model's weights belongs to another model.", "", ()),
    "InvalidRequestError": ("{fact}", "It was asked for with a value that does not do.", ()),
    "EngineProcessError": (
        "What looks after your models stopped in the middle of it, and starts again by itself.", "", _AGAIN,
    ),
    "ProtocolError": (
        "The window and what looks after your models are of different versions. Install Hearth again.", "", _AGAIN,
    ),
}  # fmt: skip
BUG = "This was not done. Your chats and your models are safe."
