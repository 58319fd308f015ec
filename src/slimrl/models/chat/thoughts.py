"""Removes reasoning in `<think>` tags from replies. Other players, environments and judges do not see the reasoning.

Defines the tags around thoughts and tool calls, too: a tag inside a tool call is part of an argument.
"""

import re

OPEN, CLOSE = "<tool_call>", "</tool_call>"
OPEN_THOUGHTS, CLOSE_THOUGHTS = "<think>", "</think>"
# A call is a JSON object. It ends at the first closing tag outside of JSON strings: a string may contain any tag, and
# outside of strings JSON has neither "<" nor a backslash. This rule and the possessive `*+` make the search for calls
# linear. At most two attempts read each character, even if a quotation mark is never closed.
CALL = re.compile(rf'{OPEN}(?P<call>\s*\{{(?:[^"<\\]++|"(?:[^"\\]++|\\.)*+")*+){CLOSE}', re.DOTALL)
# Matches a tool call, thoughts up to their closing tag or the end of the reply, or the closing tag of thoughts that the
# prompt has opened.
_PART = re.compile(rf"{CALL.pattern}|{OPEN_THOUGHTS}.*?(?:{CLOSE_THOUGHTS}|\Z)|{CLOSE_THOUGHTS}", re.DOTALL)


def without_thoughts(reply: str) -> str:
    """Return the reply after its reasoning; empty if the reasoning never ends. Tags inside a tool call are ignored.

    >>> without_thoughts("<think>42?</think><answer>42</answer>"), without_thoughts("<think><answer>42</answer>")
    ('<answer>42</answer>', '')
    """
    start, end = visible_span(reply)
    return reply[start:end]


def visible_span(reply: str) -> tuple[int, int]:
    """Return the start and end of the part of a reply without reasoning."""
    start, end = 0, len(reply)
    for part in _PART.finditer(reply):
        if part["call"] is not None:
            continue
        if part[0].endswith(CLOSE_THOUGHTS):
            start = part.end()
        else:
            end = part.start()
    return start, max(start, end)


def begins_in_thoughts(reply: str) -> bool:
    """Return True if a reply closes thoughts without opening them. This happens with templates that write the opening
    tag into the prompt."""
    tags = (part[0] for part in _PART.finditer(reply) if part["call"] is None)
    return next(tags, "") == CLOSE_THOUGHTS


def opens_thoughts(prompt: str) -> bool:
    """Return True if a prompt ends in the opening tag of reasoning, so that the reply starts inside it."""
    return prompt.rstrip().endswith(OPEN_THOUGHTS)
