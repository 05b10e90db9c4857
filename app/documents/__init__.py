"""Documents: files attached to messages, and folders whose files are indexed in place and searched for questions."""
