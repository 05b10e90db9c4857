"""Chats as documents to print and as web pages."""
