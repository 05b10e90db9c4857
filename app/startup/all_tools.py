"""All tools of the window: the built-in ones, those of the servers that the user added, and the documents."""

from __future__ import annotations

from collections.abc import Callable

from app.documents.document_tool import DocumentTool
from app.documents.documents import Documents
from app.settings import AppPaths, AppSettings
from app.tools.built_in import BuiltInTools
from app.tools.mcp.client import McpTools
from app.tools.mcp.server_list import ToolServerList
from app.tools.mcp.servers_controller import Save, ToolServersController
from app.tools.tool_box import ToolBox
from app.tools.web_search import BRAVE_ADDRESS, chosen_service


class AllTools:
    """Everything that offers tools. mcp: the tools of servers. controller: changes the servers. documents: the folders
    that are searched for questions.
    """

    def __init__(
        self,
        places: AppPaths,
        box: ToolBox,
        settings: Callable[[], AppSettings],
        key_of: Callable[[str], str],
        save: Save,
    ) -> None:
        """Read nothing. box: gets the tools. settings: the current ones. key_of: the key for an address if no keyring
        has it; else "". save: writes a small file in the background."""
        self.box = box
        self.servers = ToolServerList(places.tool_servers_file, places)
        self.mcp = McpTools(self.servers, places.tool_servers_folder, ask=box.ask, changed=box.tell_changed)
        self.controller = ToolServersController(self.servers, self.mcp, save)
        built_in = BuiltInTools.of(lambda: chosen_service(settings(), key_of(BRAVE_ADDRESS)))
        self.documents = Documents(places.documents_file, places.document_index_file, save)
        box.offer((built_in, DocumentTool(self.documents), self.mcp))
        self.documents.changed.connect(box.tell_changed)

    def read(self) -> None:
        """Read the small files of servers and of folders of documents. Starts no server, and begins to index."""
        self.servers.read()
        self.documents.read()
        self.box.tell_changed()

    def close(self) -> None:
        """End all servers; blocks for a few seconds at most."""
        self.mcp.close()
        self.documents.close()
