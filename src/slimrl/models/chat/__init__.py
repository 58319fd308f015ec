"""Conversations as token ids, and what can be read out of a reply."""
