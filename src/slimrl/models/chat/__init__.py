"""Chat formats: conversations to token ids, and tool calls, thoughts and excerpts in texts."""
