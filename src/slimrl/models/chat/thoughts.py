"""Removes reasoning in `<think>` tags from replies: other players, environments and judges do not see it."""

import re

OPEN_THOUGHTS, CLOSE_THOUGHTS = "<think>", "</think>"
# The first alternative allows for a missing opening tag, which some templates write into the prompt; the second for a
# missing closing tag: reasoning that never ends contains no answer.
_THOUGHTS = re.compile(f"^.*{CLOSE_THOUGHTS}|{OPEN_THOUGHTS}.*", re.DOTALL)


def without_thoughts(reply: str) -> str:
    """The reply without its reasoning.

    >>> without_thoughts("<think>42?</think><answer>42</answer>"), without_thoughts("<think><answer>42</answer>")
    ('<answer>42</answer>', '')
    """
    return _THOUGHTS.sub("", reply)


def opens_thoughts(prompt: str) -> bool:
    """Whether a prompt ends in the opening tag of the reasoning, so that the reply begins inside of it."""
    return prompt.rstrip().endswith(OPEN_THOUGHTS)
