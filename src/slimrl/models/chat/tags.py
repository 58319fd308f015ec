"""Defines the tags around thoughts and tool calls in a reply, and the pattern of a tool call."""

import re

OPEN, CLOSE = "<tool_call>", "</tool_call>"
OPEN_THOUGHTS, CLOSE_THOUGHTS = "<think>", "</think>"
# A call is a JSON object. It ends at the first closing tag outside of JSON strings: a string may contain any tag, and
# outside of strings JSON has neither "<" nor a backslash. This rule and the possessive `*+` make the search for calls
# linear. At most two attempts read each character, even if a quotation mark is never closed.
CALL = re.compile(rf'{OPEN}(?P<call>\s*\{{(?:[^"<\\]++|"(?:[^"\\]++|\\.)*+")*+){CLOSE}', re.DOTALL)
