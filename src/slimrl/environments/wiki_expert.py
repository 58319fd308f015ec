"""How a question is answered by somebody who knows where the answer stands, and still has to find it with the tools."""

from collections.abc import Callable
from typing import Protocol

from slimrl.environments.base import Turn
from slimrl.retrieval.pages import Question
from slimrl.retrieval.sections import FULL, key_of
from slimrl.types import Message


class Episode(Protocol):
    """What the expert plays."""

    def opening(self) -> list[Message]: ...

    def look_up(self, said: str) -> Turn: ...


class _Play:
    """The conversation so far."""

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        self.messages = episode.opening()

    def call(self, name: str, argument: str) -> str:
        """What the tool returns."""
        quoted = argument.replace("\\", "\\\\").replace('"', '\\"')
        self.say(text := f'<tool>{name}("{quoted}")</tool>')
        (result,) = self._episode.look_up(text).messages
        self.messages.append(result)
        return result["content"]

    def say(self, text: str) -> None:
        self.messages.append({"role": "assistant", "content": text})


def solve(question: Question, episode: Episode, title_of: Callable[[str], str]) -> list[Message]:
    """A whole conversation: search for the title of each page on the way, list its sections, read the one that leads on
    or answers, and give the answer. `title_of` is a page's title by its id."""
    play = _Play(episode)
    pages = [(question.page_id, question.section)]
    if question.via:
        pages.insert(0, (question.via, question.via_section))
    for page_id, section in pages:
        play.call("search_pages", title_of(page_id))
        listed = play.call("view_sections", page_id)
        section_id = f"{page_id}:{key_of(section)}"
        play.call("read_section", section_id if repr(section_id) in listed else f"{page_id}:{FULL}")
    play.say(f"<answer>{question.answer}</answer>")
    return play.messages
