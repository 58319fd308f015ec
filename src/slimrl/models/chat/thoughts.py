"""What a model thinks before it speaks, in `<think>` tags: nobody else hears it, answers it or judges it."""

import re

# What never ends is a thought too: an answer in it was not given.
_THOUGHTS = re.compile(r"^.*</think>|<think>.*", re.DOTALL)


def without_thoughts(reply: str) -> str:
    """What was said aloud.

    >>> without_thoughts("<think>42?</think><answer>42</answer>"), without_thoughts("<think><answer>42</answer>")
    ('<answer>42</answer>', '')
    """
    return _THOUGHTS.sub("", reply)
