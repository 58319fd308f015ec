"""The `play` command: a person plays any environment in the terminal, in place of the policy.

No PyTorch is loaded, so a game starts at once. The command does not use the agent loop, because nothing is sampled or
stored. If an environment fails, the episode stops, and the command prints the reason that training would record.
"""

import asyncio
import contextlib
import io
import math
import random
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from slimrl.config.play import PlayConfig
from slimrl.config.reading.load import Resolved
from slimrl.environments.find import tasks_of
from slimrl.environments.scripts import demonstrate
from slimrl.errors import RolloutError, UserError
from slimrl.launch.tasksets import environment_to_play, load_tasksets
from slimrl.models.chat.excerpt import shorten
from slimrl.monitor.console import RunConsole
from slimrl.rollout.answers import close_episode, start_episode, step_episode
from slimrl.rollout.failures import run_with_timeout
from slimrl.types import Environment, Message, Task, Taskset, Turn

with contextlib.suppress(ImportError):  # some builds of Python lack readline
    import readline  # noqa: F401  # its import alone gives `input` line editing with the arrow keys

T = TypeVar("T")
HELP, EXPERT, QUIT = "/help", "/expert", "/quit"
CHARACTERS = 4  # of a token, roughly: the limit of an excerpt is in tokens, and there may be no tokenizer here
HELP_TEXT = f"""\
Type what the policy would write, with its tags. An empty line ends your reply, and so does Ctrl-D.
  {EXPERT}  show how a scripted expert does this task, from its beginning
  {HELP}    show this
  {QUIT}    leave; so does Ctrl-D where you have typed nothing, and Ctrl-C"""


class Terminal:
    """The screen and keyboard of one person. Input that is not typed by hand is printed, too, so that a log is
    complete. Raises UserError if standard input is closed."""

    def __init__(self) -> None:
        if sys.stdin is None:
            raise UserError("there is no keyboard to read from: standard input is closed.")
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        self._console = RunConsole()
        self._typed_by_hand = sys.stdin.isatty()

    def note(self, text: str, style: str = "") -> None:
        """Print a text that is not part of the episode."""
        self._console.note(text, style)

    def message(self, role: str, text: str) -> None:
        """Print a message with its role as the title."""
        self.note(f"--- {role} ---", "bold")
        self.note(text)

    def read(self, actions: Mapping[str, Callable[[], object]]) -> str | None:
        """Read a reply, which ends at an empty line or Ctrl-D. Return None after `/quit` and at the end of the input. A
        line with a command in `actions` runs this command, and discards the lines of the reply before it."""
        lines: list[str] = []
        while (line := self._line("... " if lines else "> ")) is not None or lines:
            word = (line or "").strip()
            # A command is also recognised within a reply: otherwise `/quit` would be sent to the environment.
            if word == QUIT:
                return None
            if word in actions:
                lines.clear()
                actions[word]()
            elif line and word:
                lines.append(line)
            elif lines:
                reply = "\n".join(lines)
                if not self._typed_by_hand:  # a typed reply is on the screen already
                    self.message("you", reply)
                return reply
        return None

    def _line(self, prompt: str) -> str | None:
        try:
            return input(prompt if self._typed_by_hand else "").rstrip("\r\n")
        except EOFError:
            if self._typed_by_hand:
                self.note("")  # ends the line of the prompt
            return None


def run_play(resolved: Resolved[PlayConfig]) -> int:
    """Run the `play` command: one task after the other, until the person stops."""
    config, terminal = resolved.config, Terminal()
    terminal.note(f"making the tasks of {config.id} ...")
    (taskset,) = load_tasksets([environment_to_play(config)], config.episode_timeout_s)
    found = tasks_of(taskset, config.split)
    tasks = in_order(found, config)
    if taskset.roles:
        raise UserError(
            f"with these `args` the policy has the other side of {config.id}, too: leave `args.partner` away, or name "
            "the server of a model (`--args.partner llm --args.llm.base_url ...`)."
        )
    terminal.note(taskset.purpose or config.id, "bold")
    terminal.note(f"{len(tasks)} tasks in {config.split}. You are the policy: what follows is all that it reads.")
    terminal.note(HELP_TEXT)
    with asyncio.Runner() as runner:
        for task in tasks:
            # An id may reveal the answer, so it is shown only after the episode.
            terminal.note(f"\nTask {found.index(task)} of {config.split}", "bold")
            # asyncio handles Ctrl-C only while its event loop runs. It runs while the environment answers, not while
            # the person types.
            game = _Game(taskset, task, terminal, runner, config.episode_timeout_s)
            if not game.play():
                break
    return 0


def in_order(tasks: Sequence[Task], config: PlayConfig) -> list[Task]:
    """Return the tasks in a random order from `config.seed`, but `config.task` first. Raises UserError if there are no
    tasks, or if `config.task` is not among them."""
    if not tasks:
        raise UserError(
            f"environment `{config.id}` has no tasks in split = {config.split}. Try another `--split`: train, "
            "validation or test; or look at the `args` that say how many there are."
        )
    order = random.Random(f"play/{config.seed}").sample(tasks, len(tasks))
    if not config.task:
        return order
    by_id = {task.id: task for task in tasks}
    first = by_id.get(config.task)
    if first is None and config.task.isdecimal() and int(config.task) < len(tasks):
        first = tasks[int(config.task)]
    if first is None:
        raise UserError(
            f"task = {config.task:.100} is no task of `{config.id}` in split = {config.split}. It has {len(tasks)}, "
            f"with the numbers 0 to {len(tasks) - 1} and ids such as `{tasks[0].id:.100}`."
        )
    return [first, *(task for task in order if task is not first)]


@dataclass
class _Game:
    taskset: Taskset
    task: Task
    terminal: Terminal
    runner: asyncio.Runner
    timeout_s: float

    def play(self) -> bool:
        """Play the episode. Return True if it finished, and False if the person left it or it failed. The environment
        is closed in any case, also after Ctrl-C."""
        try:
            environment = self._wait(_make(self.taskset, self.task))
            try:
                return self._converse(environment)
            finally:
                self._wait(close_episode(environment))
        except RolloutError as error:
            self.terminal.note(f"The episode failed; training would drop it ({error.reason}): {error.detail}", "red")
            return False

    def _converse(self, environment: Environment) -> bool:
        self._show(self._wait(start_episode(environment)))
        reward = 0.0
        actions: dict[str, Callable[[], object]] = {
            HELP: lambda: self.terminal.note(HELP_TEXT),
            EXPERT: self._show_expert,
        }
        while (reply := self.terminal.read(actions)) is not None:
            turn = self._wait(step_episode(environment, reply))
            reward += turn.reward
            self._show(turn.messages)
            if turn.done:
                self._show_result(reward, turn)
                return True
            if turn.reward:
                self.terminal.note(f"That earned {turn.reward:+.3g}, {reward:.3g} so far.", "bold")
        return False

    def _show(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.terminal.message(message["role"], as_read(message))

    def _show_expert(self) -> None:
        try:
            conversation = demonstrate(self.taskset, self.task)
        except UserError as error:
            self.terminal.note(str(error), "yellow")
            return
        self.terminal.note("The expert, from the beginning of the task:", "bold")
        said = [message["role"] for message in conversation]
        for message in conversation[said.index("assistant") if "assistant" in said else 0 :]:
            self.terminal.message("expert" if message["role"] == "assistant" else message["role"], as_read(message))
        self.terminal.note("Now you.", "bold")

    def _show_result(self, reward: float, turn: Turn) -> None:
        self.terminal.note(f"The episode is over. Reward: {reward:.4g} (task {self.task.id})", "bold")
        width = max(map(len, turn.metrics), default=0)
        for name, value in turn.metrics.items():
            self.terminal.note(f"  {name:<{width}}  {value:.6g}")

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a call of the environment, and return its result. Raises RolloutError if the call fails, as in
        training."""
        return self.runner.run(run_with_timeout(work, "environment", self.timeout_s))


async def _make(taskset: Taskset, task: Task) -> Environment:
    return taskset.environment(task)


def as_read(message: Message) -> str:
    """Return a message as the policy reads it, but without the chat template's tokens. The names of callable tools are
    appended. If a part of the message has a token limit (`excerpt`), it is cut to about this limit."""
    text = message["content"]
    if "excerpt" in message:
        begin, end, limit = message["excerpt"]["begin"], message["excerpt"]["end"], message["excerpt"]["max_tokens"]
        cut = shorten(text[begin:end], limit, lambda part: math.ceil(len(part) / CHARACTERS))
        text = f"{text[:begin]}{cut}{text[end:]}"
    tools = [tool.get("function", {}) for tool in message.get("tools", [])]
    lines = [f"{tool.get('name')}({', '.join(tool.get('parameters', {}).get('properties', {}))})" for tool in tools]
    return "\n".join([text, *(["", "Tools, called as the model's chat template has it:"] if lines else []), *lines])
