"""`reverse-text`: reverse a text letter by letter, inside <reversed_text> tags.

The entry-level task. Language models read tokens, not letters, so a small model has to learn how tokens are spelt
before it can turn them round. The reward is the similarity of the answer and the true reversal, 0 without the tags.
"""

import difflib
import hashlib
import random
import re
import string
from collections.abc import Sequence

from slimrl.environments.base import Turn
from slimrl.errors import UserError
from slimrl.types import Message, Split, Task

PROMPT = "Reverse the text letter by letter. Answer in <reversed_text> tags.\n{text}"
ANSWER = re.compile(r"<reversed_text>(.*?)</reversed_text>", re.DOTALL)
# One text in five is held out, decided by its hash: no text is ever in both splits, whatever the sizes and lengths.
TEST_SHARE = 5


class ReverseText:
    """Made-up words of `min_letters` to `max_letters` random lower-case letters; seeded, and distinct."""

    def __init__(
        self, min_letters: int = 3, max_letters: int = 6, num_train: int = 10_000, num_test: int = 1_000
    ) -> None:
        if not 3 <= min_letters <= max_letters:
            raise UserError(
                f"reverse-text: needs 3 <= min_letters <= max_letters, not {min_letters} and {max_letters} (there are "
                "too few shorter words to hold some out)."
            )
        available = sum(26**n for n in range(min_letters, max_letters + 1)) // (2 * TEST_SHARE)
        if max(num_train, num_test) > available:
            raise UserError(f"reverse-text: at most {available} texts a split can be drawn at these lengths.")
        self._letters = (min_letters, max_letters)
        self._sizes: dict[Split, int] = {"train": num_train, "test": num_test}

    def tasks(self, split: Split) -> Sequence[Task]:
        rng = random.Random(f"reverse-text/{split}")
        texts: dict[str, None] = {}
        while len(texts) < self._sizes[split]:
            text = "".join(rng.choices(string.ascii_lowercase, k=rng.randint(*self._letters)))
            if split_of(text) == split:
                texts[text] = None
        return [Task(id=f"{split}/{text}", data={"text": text}) for text in texts]

    def environment(self, task: Task) -> "ReverseTextEpisode":
        return ReverseTextEpisode(task.data["text"])

    def demonstrate(self, task: Task) -> list[Message]:
        text: str = task.data["text"]
        return [*opening(text), {"role": "assistant", "content": f"<reversed_text>{text[::-1]}</reversed_text>"}]


class ReverseTextEpisode:
    """One text, one answer."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def start(self) -> list[Message]:
        return opening(self._text)

    async def step(self, reply: str) -> Turn:
        answer = ANSWER.search(reply)
        target = self._text[::-1]
        given = answer.group(1).strip() if answer else ""
        similarity = difflib.SequenceMatcher(None, given, target).ratio() if answer else 0.0
        metrics = {"exact": float(given == target), "tagged": float(answer is not None)}
        return Turn(done=True, reward=similarity, metrics=metrics)


def opening(text: str) -> list[Message]:
    """The question. The text has a line of its own, so that it is tokenised as the answer's letters are."""
    return [{"role": "user", "content": PROMPT.format(text=text)}]


def split_of(text: str) -> Split:
    """Which split a text belongs to: a pure function of the text."""
    return "test" if hashlib.sha256(text.encode()).digest()[0] % TEST_SHARE == 0 else "train"
