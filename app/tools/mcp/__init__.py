"""Tools of MCP servers: the servers as data, the client that talks to them, and the process that confines them."""
