"""The library process's jobs with servers: their models, their keys, their answers.

The table in library_jobs.py names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.errors import InvalidRequestError

if TYPE_CHECKING:
    from engine.library.service.library_jobs import LibraryContext
    from engine.library.service.services import Services
    from engine.remote_servers.client import RemoteServer

Values = dict[str, Any]


def server_models(services: Services, given: Values, job: LibraryContext) -> Values:
    """Return {"address": normalised, "models": [ids]}."""
    server = _server(services, given)
    return {"address": server.address, "models": server.models(job.cancelled)}


def server_chat(services: Services, given: Values, job: LibraryContext) -> Values:
    messages = given["messages"]
    if not all(isinstance(one, dict) and {"role", "content"} <= one.keys() for one in messages):
        raise InvalidRequestError("The messages of a chat have a role and a content each.")
    server = _server(services, given)
    return server.answer(given["model"], messages, given.get("sampling", {}), job.say, job.cancelled)


def server_key(services: Services, given: Values, job: LibraryContext) -> Values:
    """Store a server's key: {"kept", "note"}."""
    from engine.remote_servers.address import checked_address

    return services.server_keys.keep_for_server(checked_address(given["address"]), given["set"])


def own_key(services: Services, given: Values, job: LibraryContext) -> Values:
    """Return the key of this PC's own server, after replacing it if requested: {"key", "kept", "note"}."""
    return services.server_keys.keep_own(given["set"]) if "set" in given else services.server_keys.own()


def _server(services: Services, given: Values) -> RemoteServer:
    """Return the server. key: for one without a keyring entry; otherwise the keyring's."""
    from engine.remote_servers.address import checked_address
    from engine.remote_servers.client import RemoteServer
    from engine.remote_servers.keys import checked_key

    address = checked_address(given["address"])
    key = checked_key(given.get("key", "")) or services.server_keys.of_server(address)
    return RemoteServer(address, given.get("name", "") or "The server", key)
