"""Reads what the index keeps of a line of a rollout file, without parsing its lists of numbers.

The lists of token ids, masks, log-probabilities and versions are nine tenths of a line. The mask and the versions are
counted in the text; a line that is not laid out as `monitor/rollouts.py` writes it is parsed as a whole.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slimrl.io.checksums import has_wrong_digest
from slimrl.io.text import spans_between
from slimrl.types import StopReason

EXCERPT_CHARS = 160  # of the last reply, and of the prompt's last message
MOST = 2**63  # the index has no place for a whole number from here on
CALLS = ("tool", "tool_call", "code")  # tags around calls
NUMBERS = b"[], -0123456789"
IDS, MASK, LOGPROBS, VERSIONS = (
    f', "{name}": ['.encode() for name in ("token_ids", "loss_mask", "logprobs", "versions")
)


@dataclass(frozen=True, slots=True)
class Line:
    """What the index keeps of a rollout. A missing number is None. `is_flat` says that it has advantages and that its
    group had no signal: as the run has recorded it, or in older files because all of its advantages are 0. `text` is in
    lower case, for the search."""

    task: str
    environment: str
    draw: int
    role: str
    reward: float | None
    advantage: float | None
    is_flat: bool
    drop: str
    stop: str
    turns: int
    tokens: int
    tool_calls: int
    version: int | None
    excerpt: str
    prompt: str
    metrics: str
    text: str


@dataclass(frozen=True, slots=True)
class _Counts:
    turns: int
    tokens: int
    version: int | None


def read_line(line: bytes) -> Line:
    """What the index keeps of a line. Raises ValueError if the line is no rollout or does not agree with its digest."""
    if has_wrong_digest(line):
        raise ValueError("is damaged")
    try:
        record, counts = _quick(line) or _whole(line)
        return _line_of(record, counts)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"is no rollout: {type(error).__name__}") from None


def encodable(text: str) -> str:
    """The text with a mark in place of each half of a surrogate pair, which JSON can spell and UTF-8 cannot."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _line_of(record: Mapping[str, Any], counts: _Counts) -> Line:
    advantages = [value for value in record.get("advantages", ()) if value is not None]
    messages = record["messages"]
    replies = [message for message in messages if message["role"] == "assistant"]
    asked = messages[: messages.index(replies[0])] if replies else messages
    metrics = {encodable(name): value for name, value in record.get("metrics", {}).items() if _is_number(value)}
    drop = encodable(str(record.get("failure", "")))
    has_signal = record.get("has_signal")
    return Line(
        task=encodable(str(record["task_id"])),
        environment=encodable(str(record.get("environment", ""))),
        draw=_whole_number(record.get("draw", -1)),
        role=encodable(str(record.get("role", ""))),
        reward=float(record["reward"]) if _is_number(record["reward"]) else None,
        advantage=sum(advantages) / len(advantages) if advantages else None,
        is_flat=bool(advantages) and not (has_signal if isinstance(has_signal, bool) else any(advantages)),
        drop=drop,
        stop=encodable(str(record.get("stop_reason") or (StopReason.FAILED if drop else StopReason.DONE))),
        turns=counts.turns,
        tokens=counts.tokens,
        tool_calls=sum(map(_num_calls, replies)),
        version=None if counts.version is None else _whole_number(counts.version),
        excerpt=_excerpt(replies),
        prompt=_excerpt(asked),
        metrics=json.dumps(metrics),
        text=encodable(str(record.get("text", "")).lower()),
    )


def _excerpt(messages: Sequence[Mapping[str, Any]]) -> str:
    """The beginning of the last message; empty without one."""
    return encodable(str(messages[-1]["content"])[:EXCERPT_CHARS]) if messages else ""


def _quick(line: bytes) -> tuple[dict[str, Any], _Counts] | None:
    """The line's fields without its lists of numbers, and what is counted in these; None if it is laid out otherwise.

    No text can hold the beginning of a list as it is looked for here: quotes in a JSON text have a backslash.
    """
    begin = line.rfind(IDS)
    mask, logprobs, versions = (line.find(mark, begin) for mark in (MASK, LOGPROBS, VERSIONS))
    if not 0 < begin < mask < logprobs < versions:
        return None
    masks = line[mask + len(MASK) : logprobs - 1]
    numbers = line[versions + len(VERSIONS) : line.find(b"]", versions)].split(b", ")
    if masks.strip(NUMBERS) or len(numbers) != masks.count(b",") + 1:
        return None
    sampled = [int(number) for number in {*numbers} if number not in (b"-1", b"")]
    counts = _Counts(masks.count(b"0, 1") + masks.startswith(b"1"), masks.count(b"1"), min(sampled, default=None))
    return json.loads(line[:begin] + b"}"), counts


def _whole(line: bytes) -> tuple[dict[str, Any], _Counts]:
    record = json.loads(line)
    mask: Sequence[int] = record["loss_mask"]
    turns = sum(bool(b) and not a for a, b in zip((0, *mask), mask, strict=False))
    sampled = [version for version in record["versions"] if version >= 0]
    return record, _Counts(turns, sum(map(bool, mask)), min(sampled, default=None))


def _num_calls(message: Mapping[str, Any]) -> int:
    """The number of tools that a reply calls, in any of the formats of `tools/`."""
    content = str(message["content"])
    return len(message.get("tool_calls") or ()) or _num_in_tags(content)


def _num_in_tags(content: str) -> int:
    if "</" not in content:
        return 0
    num = end = 0
    for begin, behind in sorted(span for tag in CALLS for span in spans_between(content, f"<{tag}>", f"</{tag}>")):
        if begin >= end:  # not within another one
            num, end = num + 1, behind
    return num


def _whole_number(value: Any) -> int:
    """The whole number. Raises ValueError if the index has no place for it, and OverflowError for an infinite one."""
    number = int(value)
    if not -MOST <= number < MOST:
        raise ValueError("is too large")
    return number


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
