"""The text of messages: prose, code, tables, and rows that show more."""
