"""Serves chat in the forms of OpenAI's Responses and of Messages, each translated to a chat request.

`chat.py` writes prompts, samples and reads tool calls; only the forms of bodies and replies are here.
"""
