"""Colours the tokens of a rollout for a terminal. Texts of models are shown without control characters."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.style import Style
from rich.text import Text

from slimrl.errors import visible

# What tokens can be coloured by, and whether its sign matters.
SIGNED = {"advantage": True, "logprob": False, "log_ratio": True, "entropy": False}
GOOD, BAD, AMOUNT = (0, 158, 115), (213, 94, 0), (86, 180, 233)  # Okabe and Ito: told apart by the colour-blind
PROMPT = Style(dim=True)
TITLE = Style(bold=True, reverse=True)


def conversation(rollout: Mapping[str, Any], by: str) -> Text:
    """The rollout as text: its tokens coloured `by` a statistic, or its messages where it has no tokens."""
    tokens = rollout["tokens"]
    if tokens is None:
        return _messages(rollout)
    text = Text()
    values = tokens[by]
    top = largest(values)
    for segment in rollout["segments"]:
        text.append(f" {segment['role']} · {segment['kind']} \n", TITLE)
        for place in range(segment["begin"], segment["end"]):
            sampled = tokens["mask"][place]
            value = values[place] if values is not None and sampled else None
            style = style_of(value, top, SIGNED[by]) if sampled else PROMPT
            text.append(visible(tokens["text"][place]), style)
        text.append("\n")
    return text


def legend(rollout: Mapping[str, Any], by: str) -> str:
    """A line that says what the colours mean."""
    tokens = rollout["tokens"]
    if tokens is None:
        return str(rollout["tokens_note"])
    if tokens[by] is None:
        return f"{by} was not recorded for this rollout"
    name, top = by.replace("_", " "), largest(tokens[by])
    scale = f"green up to +{top:.3g}, orange down to -{top:.3g}" if SIGNED[by] else f"blue up to {top:.3g} away from 0"
    return f"{name}: {scale}"


def largest(values: Sequence[float | None] | None) -> float:
    """The largest distance from 0 of the values; 0 if there are none."""
    return max((abs(value) for value in values or () if value is not None and math.isfinite(value)), default=0.0)


def style_of(value: float | None, top: float, is_signed: bool) -> Style:
    """The background for a value, stronger the farther it is from 0; none without a value."""
    if value is None or not math.isfinite(value) or not top:
        return Style()
    share = min(1.0, abs(value) / top)
    if share < 0.02:
        return Style()
    red, green, blue = (GOOD if value > 0 else BAD) if is_signed else AMOUNT
    # From nearly black, on which white is read, to the colour itself, on which black is.
    mixed = [int(24 + (channel - 24) * (0.2 + 0.8 * share)) for channel in (red, green, blue)]
    ink = "black" if sum(mixed) > 330 else "white"
    return Style.parse(f"{ink} on rgb({mixed[0]},{mixed[1]},{mixed[2]})")


def _messages(rollout: Mapping[str, Any]) -> Text:
    text = Text()
    for message in rollout["messages"]:
        text.append(f" {visible(str(message['role']))} \n", TITLE)
        text.append(f"{visible(str(message['content']))}\n")
    return text
