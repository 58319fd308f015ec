"""Our side of `multi_turn.py` and `scaling.py`: groups of multi-turn episodes, sampled and, if asked for, trained on.

The real parts: `run_episode` on a made-up environment, `LocalClient`, the engine, the train step. Every reply has the
same number of tokens, because no token ends it, and so have all observations, to a word; so the work is the same
however the dice fall.
"""

import argparse
import asyncio
import json
import random
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

from slimrl.config.loss import LossConfig
from slimrl.config.model import ModelConfig
from slimrl.config.rollout import LimitsConfig
from slimrl.config.train import OptimConfig, TrainerConfig
from slimrl.inference.client import Client, Completion
from slimrl.inference.engine import Engine
from slimrl.inference.local_client import LocalClient
from slimrl.models.chat.template import ChatFormat
from slimrl.models.load import Policy, load_policy
from slimrl.rollout.episode import EpisodeSpec, RolloutContext
from slimrl.rollout.games import run_groups
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.step import TrainStep
from slimrl.transport.base import Batch
from slimrl.types import Message, Rollout, Sample, SamplingParams, Split, Task, Taskset, Turn

WORDS = Path(__file__).read_text(encoding="utf-8").replace('"', " ").split()
GLUE = 64  # more than a chat template adds to a turn
LEARNING_RATE = 1e-6


@dataclass(frozen=True, slots=True)
class Group:
    """`rollouts` episodes on one prompt, of `turns` replies each. The lengths are in tokens."""

    rollouts: int
    turns: int
    prompt: int
    observation: int
    reply: int

    def __str__(self) -> str:
        return ",".join(map(str, (self.rollouts, self.turns, self.prompt, self.observation, self.reply)))

    @property
    def seq_len(self) -> int:
        """Room for an episode."""
        return self.prompt + self.turns * (self.reply + self.observation + GLUE)


def group_of(text: str) -> Group:
    """The inverse of `str(group)`."""
    return Group(*map(int, text.split(",")))


@dataclass(slots=True)
class GroupReport:
    """The timed groups of one kind. Tokens are counted in the rollouts, `prefilled` is the engine's own count.

    `unique` tokens: those that differ in what stands before them. `unique_read`: of these the ones that the policy did
    not sample itself. `read` and `sampled` count every episode's.
    """

    group: str
    sample_s: list[float] = field(default_factory=list)
    train_s: list[float] = field(default_factory=list)
    prefilled: list[int] = field(default_factory=list)
    unique: list[int] = field(default_factory=list)
    unique_read: list[int] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)


@dataclass(slots=True)
class EpisodesReport:
    """What one process measured."""

    side: str
    versions: dict[str, str]
    num_threads: int
    groups: list[GroupReport] = field(default_factory=list)
    peak_memory_gb: float = 0.0


class Readings(Taskset):
    """The taskset: an opening and observations of given lengths, the same text for all episodes of a task."""

    def __init__(self, chat: ChatFormat, group: Group, seed: int) -> None:
        rng = random.Random(seed)
        opening = _text_of(lambda text: len(chat.opening([_user(text)])), group.prompt, rng)
        begun: list[Message] = [_user(opening), {"role": "assistant", "content": "reply"}]
        observed = [
            _text_of(lambda text: len(chat.continuation([*begun, _user(text)], after=0)), group.observation, rng)
            for _ in range(group.turns - 1)
        ]
        self.task = Task(id=str(seed), data={"texts": [opening, *observed]})

    def tasks(self, split: Split) -> Sequence[Task]:
        return [self.task]

    def environment(self, task: Task) -> "Reading":
        return Reading(task.data["texts"])


class Reading:
    """One episode: gives the next text, whatever the reply."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = iter(texts)

    async def start(self) -> list[Message]:
        return [_user(next(self._texts))]

    async def step(self, reply: str) -> Turn:
        text = next(self._texts, "")
        return Turn(done=not text, messages=[_user(text)] if text else [], reward=0.0)


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _text_of(length: Callable[[str], int], num_tokens: int, rng: random.Random) -> str:
    """Words until the text is as long as wanted."""
    words = [rng.choice(WORDS)]
    while length(" ".join(words)) < num_tokens:
        words.append(rng.choice(WORDS))
    return " ".join(words)


class Resending:
    """A client for which nothing can be reused: it puts a token before each prompt, another one every time.

    So the engine computes the whole conversation anew each turn, as a server without a prefix cache does.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._num_sent = 0

    @property
    def version(self) -> int:
        return self._client.version

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        self._num_sent += 1
        return await self._client.sample([self._num_sent, *prompt], params)


class Runner:
    """Plays groups of one kind, and trains on them with `train_step` if there is one."""

    def __init__(self, policy: Policy, group: Group, resend: bool) -> None:
        self._group, self._policy = group, policy
        self.engine = Engine(policy.module, frozenset(), group.rollouts, group.seq_len + 1)
        client: Client = LocalClient(self.engine, policy.chat.text)
        limits, client = LimitsConfig(max_turns=group.turns), Resending(client) if resend else client
        self._player = RolloutContext(client, policy.chat, limits, group.seq_len, group.rollouts)

    def play(self, seed: int) -> tuple[list[Rollout], float]:
        """One group and the seconds that it took."""
        taskset = Readings(self._policy.chat, self._group, seed)
        specs = [
            EpisodeSpec(taskset, taskset.task, SamplingParams(max_tokens=self._group.reply, seed=1000 * seed + number))
            for number in range(self._group.rollouts)
        ]
        began = time.perf_counter()
        rollouts = [rollout for (rollout,) in asyncio.run(run_groups([[a] for a in specs], self._player))]
        seconds = time.perf_counter() - began
        for rollout in rollouts:
            assert not rollout.failure, f"{rollout.failure}: {rollout.failure_detail}"
            assert rollout.num_sampled == self._group.turns * self._group.reply, "a reply ended early"
        return rollouts, seconds


def measure(runner: Runner, group: Group, train_step: TrainStep | None, num_timed: int) -> GroupReport:
    """One group that is not counted and then `num_timed`, each on new texts and with nothing cached from before."""
    report = GroupReport(str(group))
    for number in range(1 + num_timed):
        before = runner.engine.counters.prefilled
        rollouts, sample_s = runner.play(seed=number + 1)
        prefilled = runner.engine.counters.prefilled - before
        batch = batch_of(rollouts, runner.engine.version)
        began = time.perf_counter()
        if train_step is not None:
            train_step(batch, lr_factor=1.0, version=runner.engine.version)
        runner.engine.publish(runner.engine.version + 1)
        train_s = time.perf_counter() - began
        if number > 0:
            report.sample_s.append(sample_s)
            report.train_s += [train_s] if train_step is not None else []
            report.prefilled.append(prefilled)
            count_tokens(rollouts, report)
    return report


def count_tokens(rollouts: Sequence[Rollout], report: GroupReport) -> None:
    """Add up the rollouts' tokens. A token is the same as another one if all before it are the same, too."""
    seen: set[int] = set()
    unique_read = read = 0
    for rollout in rollouts:
        prefix = 0
        for token, trained in zip(rollout.token_ids_T, rollout.loss_mask_T, strict=True):
            prefix = hash((prefix, token))
            unique_read += not trained and prefix not in seen
            read += not trained
            seen.add(prefix)
    report.unique.append(len(seen))
    report.unique_read.append(unique_read)
    report.read.append(read)
    report.sampled.append(sum(rollout.num_sampled for rollout in rollouts))


def batch_of(rollouts: Sequence[Rollout], sampled_version: int) -> Batch:
    """The group as the trainer takes it, with advantages -1 and +1 by turns."""
    samples = [
        Sample(
            token_ids_T=rollout.token_ids_T,
            loss_mask_T=rollout.loss_mask_T,
            logprobs_T=rollout.logprobs_T,
            advantages_T=(1.0 if number % 2 else -1.0,) * len(rollout.token_ids_T),
            version=sampled_version,
        )
        for number, rollout in enumerate(rollouts)
    ]
    return Batch(tuple(samples), temperature=1.0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Our side of multi_turn.py and scaling.py; start one of those instead."
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--groups", type=group_of, nargs="+", required=True)
    parser.add_argument("--timed", type=int, required=True, help="groups of each kind that are timed")
    parser.add_argument("--resend", action="store_true", help="compute the whole conversation anew each turn")
    parser.add_argument("--train", action="store_true", help="train on each group")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    policy = load_policy(
        ModelConfig(name=str(arguments.model), device="cpu", dtype=arguments.dtype, num_threads=arguments.threads)
    )
    versions = {name: version(name) for name in ("slimrl", "torch", "transformers")}
    report = EpisodesReport("slimrl re-sending" if arguments.resend else "slimrl", versions, arguments.threads)
    config = TrainerConfig(optim=OptimConfig(lr=LEARNING_RATE), loss=LossConfig(type="grpo"))
    optimizer = MasterAdamW(policy.module, config.optim) if arguments.train else None
    for group in arguments.groups:
        train_step = TrainStep(policy.module, optimizer, config, group.seq_len) if optimizer is not None else None
        report.groups.append(measure(Runner(policy, group, arguments.resend), group, train_step, arguments.timed))
    report.peak_memory_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    arguments.output.write_text(json.dumps(asdict(report), indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
