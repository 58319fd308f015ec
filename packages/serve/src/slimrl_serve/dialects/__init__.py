"""Serves chat in the forms of OpenAI's Responses and of Messages, each translated to a chat request.

Prompts, sampling and the reading of tool calls are those of `chat.py`; only the forms of bodies and replies are here.
"""
