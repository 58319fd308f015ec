"""The tags around thoughts and tool calls in a reply, and where a call ends."""

import re

OPEN, CLOSE = "<tool_call>", "</tool_call>"
OPEN_THOUGHTS, CLOSE_THOUGHTS = "<think>", "</think>"
# A call is an object, and ends at the first closing tag outside of JSON's texts: an argument may spell any tag, and
# outside of texts JSON has neither "<" nor a backslash. This and the possessive `*+` keep the search for calls linear:
# a character is read by two attempts at most, even if a quotation mark is never closed.
CALL = re.compile(rf'{OPEN}(?P<call>\s*\{{(?:[^"<\\]++|"(?:[^"\\]++|\\.)*+")*+){CLOSE}', re.DOTALL)
