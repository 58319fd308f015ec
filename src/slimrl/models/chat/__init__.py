"""Converts conversations to token ids, parses tool calls and thoughts in replies, and shortens excerpts."""
