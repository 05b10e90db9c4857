"""The user's requests to the hub: searches, of which the newest counts, and looks into repositories.

A failure is a result too: it is shown in place of the requested list.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.clients.library_client import Library, Values
from app.later import Later
from app.user_messages import describe

if TYPE_CHECKING:
    from engine.library import records
    from engine.service import protocol
else:
    records = Later("engine.library.records")


class HubQuestions(QObject):
    """All methods return at once; results are signals."""

    searched = Signal(str, object)  # query, list[HubModel] | UserMessage
    looked = Signal(str, object, object)  # repo, Listing | UserMessage, dict[str, Estimate] by variant

    def __init__(self, library: Library) -> None:
        super().__init__()
        self._library = library
        self._query: tuple[str, str] = ("", "")
        self._searching = ""  # id of the request
        self._looking: dict[str, str] = {}  # requests by repository

    def search(self, query: str, sort: str) -> None:
        query = query.strip()
        self._query = asked = (query, sort)
        if self._searching:
            self._library.cancel(self._searching)
            self._searching = ""
        if query:
            self._searching = self._library.ask(
                "search", {"query": query, "sort": sort}, partial(self._found, asked), partial(self._not_found, asked)
            )

    def _found(self, asked: tuple[str, str], values: Values) -> None:
        if asked == self._query and not values.get("cancelled"):
            self._searching = ""
            self.searched.emit(
                asked[0], [records.from_json(records.HubModel, model, "model") for model in values["models"]]
            )

    def _not_found(self, asked: tuple[str, str], failed: protocol.Failed) -> None:
        if asked == self._query:
            self._searching = ""
            self.searched.emit(asked[0], describe(failed, during="search"))

    def look(self, repo: str) -> None:
        repo = repo.strip()
        if repo and repo not in self._looking:
            self._looking[repo] = self._library.ask(
                "look", {"repo": repo}, partial(self._looked, repo), partial(self._not_looked, repo)
            )

    def _looked(self, repo: str, values: Values) -> None:
        self._looking.pop(repo, None)
        listing = records.from_json(records.Listing, values["listing"], "listing")
        known = values.get("estimates", {})
        self.looked.emit(
            repo, listing, {name: records.from_json(records.Estimate, known[name], "estimate") for name in known}
        )

    def _not_looked(self, repo: str, failed: protocol.Failed) -> None:
        self._looking.pop(repo, None)
        self.looked.emit(repo, describe(failed, during="look", model=repo), {})
