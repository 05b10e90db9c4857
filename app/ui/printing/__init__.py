"""Chats on paper and as PDF files."""
