"""Defines episodes on a question. The policy answers in one reply, or calls tools before it answers."""

from collections.abc import Sequence
from dataclasses import dataclass

from slimrl.environments.answers import TAG, Form, read_answer
from slimrl.environments.dataset.rewards import Finished, Reward, grade
from slimrl.environments.dataset.rows import prompt_of, question_of, references_of
from slimrl.errors import RolloutError
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.tools.base import CallAttempt
from slimrl.tools.formats import CallFormat
from slimrl.types import Message, Task, Turn


@dataclass(frozen=True, slots=True)
class Grader:
    """A grader of the episodes on one task."""

    task: Task
    form: Form
    rewards: Sequence[Reward]

    async def grade(self, completion: list[Message], has_ended: bool = True) -> Turn:
        """Return the last turn of an episode, with reward and metrics. `completion` are all messages after the opening.
        `has_ended` is False if a limit cut the episode off, which then has no answer."""
        reply = next(message["content"] for message in reversed(completion) if message["role"] == "assistant")
        answer, data = read_answer(reply if has_ended else "", self.form), self.task.data
        metrics = {"answered": float(answer.text is not None)}
        if self.form in ("lenient", "tag"):
            metrics["strict"] = float(answer.is_strict)
        if self.form == "lenient":
            metrics["lenient"] = float(answer.text is not None and not answer.is_strict)
        texts = answer.text, question_of(data), references_of(data)
        try:
            finished = Finished(self.task, prompt_of(data), completion, reply, *texts, metrics)
            reward, rewards = await grade(self.rewards, finished)
        except RolloutError as error:
            if has_ended or error.reason != "no_reward":
                raise
            reward, rewards = 0.0, {}  # a dropped episode would cost nothing
        return Turn(done=True, reward=reward, metrics={**rewards, **metrics})


def opening(task: Task, system: str) -> list[Message]:
    """Return the question as messages. The text `system` precedes it, unless the question has a system message."""
    prompt = prompt_of(task.data)
    messages: list[Message] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [*prompt]
    if not system or messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": system}, *messages]


def opening_with_tools(task: Task, told: Message) -> list[Message]:
    """Return the opening messages of an episode: the message `told` about the tools, then the question. A system
    message of the question is merged into the message about the tools."""
    messages = opening(task, "")
    if messages[0]["role"] == "system":
        first, *messages = messages
        told = {**told, "content": f"{first['content']}\n\n{told['content']}"}
    return [told, *messages]


class QuestionEpisode:
    """An episode in which the policy reads `messages` and answers. With `calls`, the policy may call tools until it
    answers in `<answer>` tags. Without `calls`, the first reply is the answer."""

    def __init__(self, grader: Grader, messages: list[Message], calls: CallFormat | None = None) -> None:
        self._grader, self._messages, self._format = grader, messages, calls
        self._completion: list[Message] = []
        self._calls: list[CallAttempt] = []

    async def start(self) -> list[Message]:
        """Return the question, and the instructions for the tools."""
        return self._messages

    async def step(self, reply: str) -> Turn:
        """Return the reward if an answer precedes all calls in the reply. Otherwise make the calls and return the
        results."""
        self._completion.append({"role": "assistant", "content": reply})
        if self._format is None:
            return await self._grader.grade(self._completion)
        visible = without_thoughts(reply)
        answer = TAG.search(visible)
        if answer is not None and answer.start() < self._format.call_start(visible):
            return await self._grade(has_ended=True)
        reaction = await self._format.react(visible)
        self._calls += reaction.calls
        self._completion += reaction.messages
        return Turn(done=False, messages=reaction.messages, metrics=self._metrics())

    async def cut_off(self) -> Turn:
        """Return the reward of an episode without an answer. Otherwise calling tools up to a limit would cost nothing
        where a wrong answer costs something."""
        while self._completion[-1]["role"] != "assistant":  # results that the policy has not read
            self._completion.pop()
        return await self._grade(has_ended=False)

    async def _grade(self, has_ended: bool) -> Turn:
        turn = await self._grader.grade(self._completion, has_ended)
        return Turn(True, reward=turn.reward, metrics={**turn.metrics, **self._metrics()})

    async def close(self) -> None:
        """Close the episode's session in the sandbox, if it has one."""
        if self._format:
            await self._format.close()

    def _metrics(self) -> dict[str, float]:
        failed = sum(bool(call.error) for call in self._calls)
        return {"tool_calls": float(sum(bool(call.tool) for call in self._calls)), "invalid_calls": float(failed)}
