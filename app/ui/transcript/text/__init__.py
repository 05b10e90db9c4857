"""The text of messages: prose, code, tables, rows that show more, and work done in slices."""
