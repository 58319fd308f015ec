"""Scripts that play a search episode without a model. The expert knows the page and section of the answer, but still
finds them with the tools. The other script calls tools at random. Both write calls in the format of the episode."""

import ast
import random
from collections.abc import Callable
from dataclasses import dataclass

from slimrl.tools.formats import CallFormat
from slimrl.types import Environment, Message
from slimrl_search.retrieval.pages import Question
from slimrl_search.retrieval.sections import FULL, key_of

MAX_RANDOM_CALLS = 8


@dataclass
class _Conversation:
    """The conversation of a script so far. The methods add messages to it."""

    episode: Environment
    calls: CallFormat
    messages: list[Message]

    async def call(self, tool: str, argument: str) -> str:
        """Call a tool and return its result, as the policy reads it."""
        self.say(text := self.calls.write_call(tool, argument))
        turn = await self.episode.step(text)
        self.messages += turn.messages
        return "\n".join(message["content"] for message in turn.messages)

    def answer(self, text: str) -> list[Message]:
        """Add an answer, which finishes the conversation, and return the whole conversation."""
        self.say(f"<answer>{text}</answer>")
        return self.messages

    def say(self, text: str) -> None:
        """Append a reply of the script."""
        self.messages.append({"role": "assistant", "content": text})


async def solve(
    question: Question, episode: Environment, calls: CallFormat, title_of: Callable[[str], str]
) -> list[Message]:
    """Return the whole conversation of an expert. It searches for the title of the answer's page, lists the page's
    sections, reads the section with the answer, and answers. `title_of` maps a page's id to its title."""
    play = _Conversation(episode, calls, await episode.start())
    page_id = question.page_id
    await play.call("search_pages", title_of(page_id))
    listed = [row.get("section_id") for row in rows_in(await play.call("view_sections", page_id))]
    section_id = f"{page_id}:{key_of(question.section)}"
    await play.call("read_section", section_id if section_id in listed else f"{page_id}:{FULL}")
    return play.answer(question.answer)


async def wander(question: Question, episode: Environment, calls: CallFormat, rng: random.Random) -> list[Message]:
    """Return the whole conversation of a random player. Each call is drawn from the possible calls, with words of the
    question or an id from an earlier result. The final answer is some words of the last result."""
    play = _Conversation(episode, calls, await episode.start())
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
    last = text.split()
    start = rng.randrange(max(1, len(last) - 2))
    return play.answer(" ".join(last[start : start + rng.randrange(1, 4)]))


def rows_in(text: str) -> list[dict[str, str]]:
    """Parse the rows that `search_pages` or `view_sections` returned; an empty list if the text has no rows."""
    # Results have no numbers, booleans or nulls, so a list of rows is the same in JSON and in Python.
    begin, end = text.find("[{"), text.rfind("}]") + len("}]")
    try:
        return list(ast.literal_eval(text[begin:end])) if 0 <= begin < end else []
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []  # the text of a page that looks like rows
