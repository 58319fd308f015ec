"""Who plays an episode of a search without a model: an expert, who knows where the answer stands and still has to find
it with the tools, and somebody who calls them at random. Both speak the format of the episode.
"""

import ast
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from slimrl.environments.base import Environment
from slimrl.retrieval.pages import Question
from slimrl.retrieval.sections import FULL, key_of
from slimrl.tools.formats import CallFormat
from slimrl.types import Message

ROWS = re.compile(r"\[\{.*\}\]", re.DOTALL)
MAX_RANDOM_CALLS = 8


@dataclass
class _Play:
    """The conversation so far."""

    episode: Environment
    calls: CallFormat
    messages: list[Message]

    async def call(self, tool: str, argument: str) -> str:
        """What the tool returns, as the policy reads it."""
        self.say(text := self.calls.write_call(tool, argument))
        turn = await self.episode.step(text)
        self.messages += turn.messages
        return "\n".join(message["content"] for message in turn.messages)

    def answer(self, text: str) -> list[Message]:
        self.say(f"<answer>{text}</answer>")
        return self.messages

    def say(self, text: str) -> None:
        self.messages.append({"role": "assistant", "content": text})


async def solve(
    question: Question, episode: Environment, calls: CallFormat, title_of: Callable[[str], str]
) -> list[Message]:
    """A whole conversation: search for the title of each page on the way, list its sections, read the one that leads on
    or answers, and give the answer. `title_of` is a page's title by its id."""
    play = _Play(episode, calls, await episode.start())
    pages = [(question.page_id, question.section)]
    if question.via:
        pages.insert(0, (question.via, question.via_section))
    for page_id, section in pages:
        await play.call("search_pages", title_of(page_id))
        listed = [row.get("section_id") for row in rows_in(await play.call("view_sections", page_id))]
        section_id = f"{page_id}:{key_of(section)}"
        await play.call("read_section", section_id if section_id in listed else f"{page_id}:{FULL}")
    return play.answer(question.answer)


async def wander(question: Question, episode: Environment, calls: CallFormat, rng: random.Random) -> list[Message]:
    """A whole conversation: some calls, each at random of those that are possible so far, with words of the question or
    an id that came back; then words of what was read last as the answer."""
    play = _Play(episode, calls, await episode.start())
    words, text = question.question.split(), question.question
    ids: dict[str, list[str]] = {"page_id": [], "section_id": []}
    for _ in range(rng.randrange(1, MAX_RANDOM_CALLS + 1)):
        possible = [("search_pages", " ".join(rng.sample(words, min(len(words), rng.randrange(1, 5)))))]
        if ids["page_id"]:
            possible.append(("view_sections", rng.choice(ids["page_id"])))
        if ids["section_id"]:
            possible.append(("read_section", rng.choice(ids["section_id"])))
        text = await play.call(*rng.choice(possible))
        for row in rows_in(text):
            for name, known in ids.items():
                known += [row[name]] if name in row else []
    said = text.split()
    start = rng.randrange(max(1, len(said) - 2))
    return play.answer(" ".join(said[start : start + rng.randrange(1, 4)]))


def rows_in(text: str) -> list[dict[str, str]]:
    """Those of a search or a listing, in what came back; of texts alone JSON writes literals of Python."""
    found = ROWS.search(text)
    try:
        return list(ast.literal_eval(found[0])) if found else []
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []  # a page that looks like rows
