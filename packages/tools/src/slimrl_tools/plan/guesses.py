"""Guesses the conversations of a run that was never recorded: played by scripts, or assumed.

A scripted expert of the environment plays half of the rollouts, and a player that repeats the expert's first reply the
other half. A learning policy is between the two: it knows the form of a reply, but not yet the right one. A plan
downloads no tokenizer, so tokens are guessed from the text.
"""

import asyncio
import itertools
import random
import re
import statistics
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from slimrl.config.data import ExpertDataConfig
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.environments.base import new_episode
from slimrl.environments.find import has_one_turn, is_builtin, load_taskset, tasks_of
from slimrl.environments.scripts import EXPERT, demonstrate
from slimrl.errors import UserError
from slimrl.io.user_code import call_user_code
from slimrl.rollout.loop import run_episodes
from slimrl.types import Message, Sample, Task, Taskset
from slimrl_tools.plan.workload import Workload, few, from_earlier_run, from_recorded, sample_of

EXPERT_S = 3.0  # time limit for the experts' episodes
UNENDING = 4  # one in this many repeating rollouts talks up to the limit
MOST_TASKS = 16  # tasks that represent a batch
VOCABULARY = 1 << 20
WORDS = re.compile(r"\s?[^\W\d_]{1,6}|\d|\s*[^\w\s]|\s+|_")  # each match is about one token of usual tokenizers
Tokens = tuple[list[int], list[bool]]
Played = tuple[list[Message], float]  # a conversation with an untrained opening, and the environment's seconds


def expect_workload(config: RLConfig | SFTConfig) -> Workload:
    """Return the expected rollouts of a step. Downloads and builds nothing, and runs no code of the user's."""
    if isinstance(config, RLConfig):
        known = from_earlier_run(Path(config.output_dir), config.orchestrator.batch_size) or from_recorded(config)
        if known is not None:
            return known
    try:
        played = from_experts(config, _tasksets(config))
    except UserError:  # such as for a user's file that an expert reads: a run without a warm-up needs no expert
        played = None
    return played or from_assumption(config)


def _tasksets(config: RLConfig | SFTConfig) -> list[Taskset]:
    """Return the tasksets, if all are slimrl's own, need no preparation and use no server: others may download or build
    something, or cost money."""
    if isinstance(config, RLConfig):
        envs = config.orchestrator.env
    else:
        envs = [config.data.env] if isinstance(config.data, ExpertDataConfig) else []
    # An argument that is a table names a server: a judge's or a partner's.
    if not all(is_builtin(env.id) and not any(isinstance(one, dict) for one in env.args.values()) for env in envs):
        return []
    tasksets = [load_taskset(env.id, env.args) for env in envs]
    return tasksets if all(type(taskset).prepare is Taskset.prepare for taskset in tasksets) else []


def from_experts(config: RLConfig | SFTConfig, tasksets: Sequence[Taskset]) -> Workload | None:
    """Return rollouts, half played by the tasksets' experts and half by repeating the expert's first reply; one in four
    of the repeating ones talks up to `max_tokens`. Return None if a taskset has no expert."""
    if not tasksets or not all(EXPERT in taskset.scripts for taskset in tasksets):
        return None
    batch, group = _sizes_of(config)
    played, seconds, spent_s = list[list[Tokens]](), list[float](), 0.0
    queues = itertools.cycle([(taskset, iter(tasks_of(taskset, "train"))) for taskset in tasksets])
    for taskset, queue in itertools.islice(queues, min(max(1, batch // group), MOST_TASKS)):
        if spent_s > EXPERT_S or (task := next(queue, None)) is None:
            break
        began = time.monotonic()  # after the taskset has loaded its tasks, which may take longer than the episodes
        ways = _ways(config, taskset, task)
        spent_s += time.monotonic() - began
        encoded = [_encode(messages) for messages, _ in ways]
        if all(any(mask[: config.seq_len]) for _, mask in encoded):  # else an opening fills seq_len
            played.append(encoded)
            seconds.append(statistics.fmean(env_s for _, env_s in ways))
    if not played:
        return None
    limit = config.orchestrator.sampling.max_tokens if isinstance(config, RLConfig) else 0
    samples = few(_in_groups([_with_unending(ways, limit) for ways in played], min(group, batch), config.seq_len))
    source = "lengths of the expert's episodes, with tokens guessed from the text"
    return Workload(samples, batch / len(samples), source, statistics.median(seconds))


def from_assumption(config: RLConfig | SFTConfig) -> Workload:
    """Assume rollouts with a prompt of a quarter of `seq_len`, at most 256 tokens, and up to `max_turns` replies of
    half of `max_tokens`, with messages of the environment of the same length. For `sft`, conversations fill half of
    `seq_len`."""
    batch, group = _sizes_of(config)
    if isinstance(config, SFTConfig):
        num, most_tasks = max(1, config.seq_len // 4), batch
        mask, source = [False] * num + [True] * num, "assumed: conversations of half of seq_len, half of it replies"
    else:
        episodes = config.orchestrator
        reply, prompt = max(1, episodes.sampling.max_tokens // 2), max(1, min(256, config.seq_len // 4))
        most = 1 if all(has_one_turn(env.id, env.args) for env in episodes.env) else episodes.max_turns
        turns, most_tasks = max(1, min(most, (config.seq_len - prompt) // (2 * reply))), MOST_TASKS
        mask = [False] * prompt + ([True] * reply + [False] * reply) * (turns - 1) + [True] * reply
        source = f"assumed: a prompt of {prompt} tokens, {turns} replies of {reply}"
    rng = random.Random(0)
    num_tasks = min(max(1, batch // group), most_tasks)
    tasks = [[([rng.randrange(VOCABULARY) for _ in mask], mask)] for _ in range(num_tasks)]
    samples = few(_in_groups(tasks, min(group, batch), config.seq_len))
    return Workload(samples, batch / len(samples), source)


def _sizes_of(config: RLConfig | SFTConfig) -> tuple[int, int]:
    """Return the number of rollouts in a step and in a group."""
    if isinstance(config, RLConfig):
        return config.orchestrator.batch_size, config.orchestrator.rollouts_per_example
    return config.batch_size, 1


def _in_groups(played: Sequence[Sequence[Tokens]], group: int, seq_len: int) -> Iterator[Sample]:
    """Yield groups of `group` rollouts of the same task, which take turns among the task's variants in `played`. The
    common prefix of a group is everything before the first reply."""
    rng = random.Random(0)
    for number, (place, ways) in itertools.product(range(group), enumerate(played)):
        token_ids, mask = ways[(number + place) % len(ways)]
        if number:
            first = mask.index(True)
            token_ids = token_ids[:first] + [rng.randrange(VOCABULARY) for _ in token_ids[first:]]
        if any(mask[:seq_len]):
            yield sample_of(token_ids[:seq_len], mask[:seq_len], 1.0 if number % 2 else -1.0)


def _ways(config: RLConfig | SFTConfig, taskset: Taskset, task: Task) -> list[Played]:
    """Return the expert's conversation on a task, and one that repeats its first reply. For supervised training, or if
    they cannot be replayed, return only the expert's demonstration."""
    shown = demonstrate(taskset, task)
    replies = [message["content"] for message in shown if message["role"] == "assistant"]
    if isinstance(config, RLConfig) and replies:
        turns = config.orchestrator.max_turns
        try:
            return [_play(taskset, task, said) for said in (replies[:turns], itertools.repeat(replies[0], turns))]
        except UserError:  # an episode breaks off
            pass
    return [(shown, 0.0)]


def _play(taskset: Taskset, task: Task, replies: Iterable[str]) -> Played:
    """Return the conversation with these replies. Raises UserError if the environment fails or takes too long."""

    async def play() -> list[Message]:
        episode = new_episode(taskset, task)
        # Replies in the opening, as of other conversations, are not trained.
        messages: list[Message] = [{**message, "weight": 0} for message in await episode.start()]
        for reply in replies:
            messages.append({"role": "assistant", "content": reply})
            turn = await episode.step(reply)
            if turn.done:
                break
            messages += turn.messages
        while messages[-1]["role"] != "assistant":
            messages.pop()
        return messages

    began = time.monotonic()
    messages = call_user_code("the episode", lambda: run_episodes(asyncio.wait_for(play(), EXPERT_S)))
    return messages, time.monotonic() - began


def _with_unending(ways: Sequence[Tokens], limit: int) -> list[Tokens]:
    """Alternate the expert's and the repeating conversation; extend one in four repeating ones to `limit` tokens."""
    if len(ways) < 2 or not limit:
        return [*ways]
    expert, (token_ids, mask) = ways
    last = sum(1 for _ in itertools.takewhile(bool, reversed(mask)))
    more = max(0, limit - last)
    unending = [*token_ids, *range(VOCABULARY - more, VOCABULARY)], [*mask, *[True] * more]
    return [expert, (token_ids, mask)] * (UNENDING - 1) + [expert, unending]


def _encode(messages: list[Message]) -> Tokens:
    """Guess the tokens of a conversation, and its loss mask."""
    token_ids, mask = list[int](), list[bool]()
    for message in messages:
        words = [message["role"], "\n", *WORDS.findall(message["content"]), "<end>", "\n"]
        token_ids += [zlib.crc32(word.encode()) % VOCABULARY for word in words]
        replied = message["role"] == "assistant" and message.get("weight", 1) != 0
        mask += [False, False] + [replied] * (len(words) - 3) + [False]
    while mask and not mask[-1]:  # the sequence stops with the last reply
        mask.pop(), token_ids.pop()
    return token_ids, mask
