"""Episodes on a question. The policy answers in one reply, or calls tools before it answers."""

from collections.abc import Sequence
from dataclasses import dataclass

from slimrl.environments.answers import TAG, Form, read_answer
from slimrl.environments.dataset.rewards import Reward, grade
from slimrl.environments.dataset.rows import prompt_of, question_of, references_of
from slimrl.environments.dataset.scorers import Finished
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.tools.base import CallAttempt
from slimrl.tools.formats import CallFormat
from slimrl.types import Message, Task, Turn


@dataclass(frozen=True, slots=True)
class Grader:
    """Grades an episode."""

    task: Task
    form: Form
    rewards: Sequence[Reward]

    async def grade(self, completion: list[Message]) -> Turn:
        """Return the last turn of an episode, with its reward and metrics."""
        finished = finish(self.task, self.form, completion)
        reward, metrics = await grade([one for one in self.rewards if not one.is_of_group], finished)
        return Turn(done=True, reward=reward, metrics={**metrics, **finished.metrics})


def finish(task: Task, form: Form, completion: list[Message]) -> Finished:
    """Return the finished episode for the rewards. `completion` holds all messages after the opening."""
    reply = next(message["content"] for message in reversed(completion) if message["role"] == "assistant")
    answer = read_answer(reply, form)
    metrics = {"answered": float(answer.text is not None)}
    if form in ("lenient", "tag"):
        metrics["strict"] = float(answer.is_strict)
    if form == "lenient":
        metrics["lenient"] = float(answer.text is not None and not answer.is_strict)
    return Finished(
        task,
        prompt_of(task.data),
        completion,
        reply,
        answer.text,
        question_of(task.data),
        references_of(task.data),
        metrics,
    )


def opening(task: Task, system: str) -> list[Message]:
    """Return the question as messages. The text `system` precedes it, unless the question has a system message."""
    prompt = prompt_of(task.data)
    messages: list[Message] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [*prompt]
    if not system or messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": system}, *messages]


def opening_with_tools(task: Task, told: Message) -> list[Message]:
    """Return the opening messages of an episode: the message about the tools, then the question. A system message of
    the question is merged into the message about the tools."""
    messages = opening(task, "")
    if messages[0]["role"] == "system":
        first, *messages = messages
        told = {**told, "content": f"{first['content']}\n\n{told['content']}"}
    return [told, *messages]


class QuestionEpisode:
    """An episode of one turn: the policy reads a question and answers once."""

    def __init__(self, grader: Grader, messages: list[Message]) -> None:
        self._grader = grader
        self._messages = messages

    async def start(self) -> list[Message]:
        """Return the question."""
        return self._messages

    async def step(self, reply: str) -> Turn:
        """Return the reward of the reply."""
        return await self._grader.grade([{"role": "assistant", "content": reply}])


class ToolEpisode:
    """An episode in which the policy calls tools until it answers in tags."""

    def __init__(self, grader: Grader, messages: list[Message], calls: CallFormat) -> None:
        self._grader = grader
        self._messages = messages
        self._format = calls
        self._completion: list[Message] = []
        self._calls: list[CallAttempt] = []

    async def start(self) -> list[Message]:
        """Return the question and the instructions for the tools."""
        return self._messages

    async def step(self, reply: str) -> Turn:
        """Return the reward if an answer precedes all calls in the reply. Otherwise make the calls and return their
        results."""
        self._completion.append({"role": "assistant", "content": reply})
        visible = without_thoughts(reply)
        answer = TAG.search(visible)
        if answer is not None and answer.start() < self._format.call_start(visible):
            turn = await self._grader.grade(self._completion)
            return Turn(True, reward=turn.reward, metrics={**turn.metrics, **self._metrics()})
        reaction = await self._format.react(visible)
        self._calls += reaction.calls
        self._completion += reaction.messages
        return Turn(done=False, messages=reaction.messages, metrics=self._metrics())

    async def close(self) -> None:
        """Close the episode's session in the sandbox, if it has one."""
        await self._format.close()

    def _metrics(self) -> dict[str, float]:
        failed = sum(bool(call.error) for call in self._calls)
        return {"tool_calls": float(sum(bool(call.tool) for call in self._calls)), "invalid_calls": float(failed)}


async def play(episode: ToolEpisode, replies: Sequence[str]) -> list[Message]:
    """Play the episode with `replies`, and return the whole conversation."""
    try:
        messages = list(await episode.start())
        for reply in replies:
            turn = await episode.step(reply)
            messages += [{"role": "assistant", "content": reply}, *turn.messages]
        return messages
    finally:
        await episode.close()
