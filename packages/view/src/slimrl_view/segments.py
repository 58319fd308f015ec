"""Divides a rollout's tokens into its messages, and its replies into thoughts, tool calls, answers and other text.

Messages are found by their contents in the text, so this works with any chat template.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

Json = dict[str, Any]
# Thoughts and programs may be cut off by the end of the reply. Any other tag counts only if it is closed. A closing tag
# that is a stop text may lack its last character.
PART = re.compile(
    r"(?P<thought><think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)|\A(?:(?!<think).)*?</think>)"
    r"|(?P<tool_call><(?P<call>tool|tool_call|code)>.*?(?:</(?P=call)>?|\Z)|```.*?(?:```|\Z))"
    r"|(?P<answer><(?P<tag>[A-Za-z][\w-]*+)[^<>]*+>)",
    re.DOTALL,
)
CLOSING = re.compile(r"</([A-Za-z][\w-]*)>?")


def segments_of(
    pieces: Sequence[str], mask: Sequence[int], messages: Sequence[Mapping[str, Any]], ends: Sequence[bool]
) -> list[Json]:
    """Return the segments of a rollout in order, each with its first token and the token after its last token.

    `pieces` are the texts of the tokens. `mask` is 1 for tokens that the policy sampled. `ends` is True for special
    tokens. The first special token after a message's content belongs to the message.
    """
    starts = [0, *accumulate(map(len, pieces))]
    text = "".join(pieces)
    runs = list(_runs(mask))
    # A prompt may contain solved examples, so only the last of the assistant's messages were sampled.
    num_sampled = sum(sampled for sampled, _, _ in runs)
    replies = [number for number, message in enumerate(messages) if message.get("role") == "assistant"]
    replies = replies[max(0, len(replies) - num_sampled) :]
    segments: list[Json] = []
    next_message = 0
    for sampled, begin, end in runs:
        if sampled:
            parts = _parts(text[starts[begin] : starts[end]], starts[begin], starts[begin:end], begin)
            segments.append({"begin": begin, "end": end, "kind": "reply", "role": "assistant", "parts": parts})
            next_message = next((n + 1 for n in replies if n >= next_message), next_message)
            continue
        kind = "observation" if any(segment["kind"] == "reply" for segment in segments) else "prompt"
        upto = next((n for n in replies if n >= next_message), len(messages))
        asked = messages[next_message:upto]
        for first, last, role in _messages(text, starts, (begin, end), asked, ends):
            whole = [{"begin": first, "end": last, "kind": "text"}]
            segments.append({"begin": first, "end": last, "kind": kind, "role": role, "parts": whole})
        next_message = upto
    return segments


def _runs(mask: Sequence[int]) -> Iterator[tuple[bool, int, int]]:
    """Yield a triple for each stretch of tokens with the same mask: True if the policy sampled them, the first token,
    and the token after the last."""
    edges = [0, *(n for n, (a, b) in enumerate(pairwise(mask), 1) if bool(a) != bool(b)), len(mask)]
    return ((bool(mask[begin]), begin, end) for begin, end in pairwise(edges) if begin < end)


def _messages(
    text: str, starts: Sequence[int], span: tuple[int, int], messages: Sequence[Mapping[str, Any]], ends: Sequence[bool]
) -> Iterator[tuple[int, int, str]]:
    """Yield a triple for each message in the tokens `span`, between two replies: the first token, the token after the
    last, and the role. The text after the last message, such as the opening of the reply, belongs to the assistant."""
    begin, end = span
    at, token = starts[begin], begin
    for message in messages:
        content = str(message.get("content", "")).strip()
        found = text.find(content, at, starts[end]) if content else -1
        if found < 0:  # the template has changed or left out this message
            continue
        at = found + len(content)
        last = next((n for n in range(token, end) if starts[n + 1] >= at), end - 1) + 1
        marker = next((n for n in range(last, min(last + 3, end)) if ends[n]), last - 1) + 1
        yield token, marker, str(message.get("role", ""))
        token = marker
    if token == begin and messages:
        yield token, end, str(messages[0].get("role", ""))
    elif token < end:
        yield token, end, "assistant"


def _find_parts(reply: str) -> Iterator[tuple[str, int, int]]:
    """Yield the kind, the start and the end of each part in tags. Closing tags are searched only once, and not again
    for each opening tag, so the time is linear."""
    closings: dict[str, list[re.Match[str]]] = {}
    for one in CLOSING.finditer(reply):
        closings.setdefault(one[1], []).append(one)
    at = 0
    while found := PART.search(reply, at):
        at = found.end()
        if found["answer"] is None:
            yield ("tool_call" if found["tool_call"] is not None else "thought"), found.start(), at
            continue
        behind = closings.get(found["tag"], [])
        place = bisect_left(behind, at, key=lambda one: one.start())
        if place < len(behind):
            at = behind[place].end()
            yield "answer", found.start(), at


def _parts(reply: str, offset: int, starts: Sequence[int], first: int) -> list[Json]:
    """Return the parts of a reply as ranges of tokens. In the text, the reply is at `offset`, its tokens at `starts`;
    its first token has the index `first`. A token in two parts belongs to the first part."""
    bounds: list[tuple[int, str]] = [(0, "text")]
    for kind, begin, end in _find_parts(reply):
        bounds += [(begin, kind), (end, "text")]
    parts: list[Json] = []
    at = 0
    for number, start in enumerate(starts, first):
        while at + 1 < len(bounds) and bounds[at + 1][0] <= start - offset:
            at += 1
        kind = bounds[at][1]
        if parts and parts[-1]["kind"] == kind:
            parts[-1]["end"] = number + 1
        else:
            parts.append({"begin": number, "end": number + 1, "kind": kind})
    return parts
