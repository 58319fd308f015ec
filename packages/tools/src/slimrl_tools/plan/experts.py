"""Rollouts as an environment's scripted expert makes them, and as one does who repeats its first reply to the end.

A policy that learns is between the two: it knows the form of a reply, and not yet the right one.
"""

import asyncio
import itertools
import re
import statistics
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slimrl.config.run import RLConfig, SFTConfig
from slimrl.environments.base import new_episode
from slimrl.environments.find import call_user_code, tasks_of
from slimrl.environments.scripts import EXPERT, demonstrate
from slimrl.errors import UserError
from slimrl.io.loop_thread import LoopThread
from slimrl.models.chat.template import ChatFormat
from slimrl.types import Message, Task, Taskset
from slimrl_tools.plan.workload import MOST_TASKS, VOCABULARY, Tokens, Workload, few, in_groups, sizes_of

EXPERT_S = 3.0  # for which experts may play
UNENDING = 4  # one in so many of those that repeat themselves talks up to the limit
WORDS = re.compile(r"\s?[^\W\d_]{1,6}|\d|\s*[^\w\s]|\s+|_")  # about a token of usual tokenizers each


@dataclass(frozen=True, slots=True)
class _Played:
    """A conversation, whose opening teaches nothing, and the seconds that the environment took for it."""

    messages: list[Message]
    env_s: float


def from_experts(config: RLConfig | SFTConfig, tasksets: Sequence[Taskset], chat: ChatFormat | None) -> Workload | None:
    """Half the rollouts as the tasksets' experts play, half as one does who repeats the expert's first reply, of whom
    one in four talks up to `max_tokens`; None if a taskset has no expert. Without a chat format tokens are guessed from
    the text."""
    if not tasksets or not all(EXPERT in taskset.scripts for taskset in tasksets):
        return None
    batch, group = sizes_of(config)
    began, played, seconds = time.monotonic(), list[list[Tokens]](), list[float]()
    queues = [iter(tasks_of(taskset, "train")) for taskset in tasksets]
    num = min(max(1, batch // group), MOST_TASKS)
    for number in range(num):
        taskset, queue = tasksets[number % len(tasksets)], queues[number % len(tasksets)]
        if (task := next(queue, None)) is None or (played and time.monotonic() - began > EXPERT_S):
            break
        ways = _ways(config, taskset, task)
        encoded = [_encode(way.messages, chat) for way in ways]
        if not all(any(mask[: config.seq_len]) for _, mask in encoded):
            continue  # an opening that is longer than seq_len leaves nothing to learn
        played.append(encoded)
        seconds.append(statistics.fmean(way.env_s for way in ways))
    if not played:
        return None
    limit = config.orchestrator.sampling.max_tokens if isinstance(config, RLConfig) else 0
    samples = few(in_groups([_with_unending(ways, limit) for ways in played], min(group, batch), config.seq_len))
    how = "" if chat else ", with tokens guessed from the text"
    source = f"lengths of the expert's episodes{how}"
    return Workload(samples, batch / len(samples), source, statistics.median(seconds))


def _ways(config: RLConfig | SFTConfig, taskset: Taskset, task: Task) -> list[_Played]:
    """The expert's conversation on a task, and the one of repeating its first reply. The expert's alone, as it is
    demonstrated, for supervised training, and where it cannot be played again."""
    shown = demonstrate(taskset, task)
    replies = [message["content"] for message in shown if message["role"] == "assistant"]
    if isinstance(config, RLConfig) and replies:
        turns = config.orchestrator.max_turns
        found = [_play(taskset, task, said) for said in (replies[:turns], itertools.repeat(replies[0], turns))]
        if all(found):
            return [one for one in found if one]
    return [_Played(shown, 0.0)]


def _play(taskset: Taskset, task: Task, replies: Iterable[str]) -> _Played | None:
    """The conversation that comes of replies; None if it breaks off."""

    async def play() -> list[Message]:
        episode = new_episode(taskset, task)
        # What an opening shows of other conversations is not learned.
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
    try:
        messages = call_user_code("the episode", lambda: LoopThread("plan").wait(asyncio.wait_for(play(), EXPERT_S)))
    except UserError:
        return None
    return _Played(messages, time.monotonic() - began)


def _with_unending(ways: Sequence[Tokens], limit: int) -> list[Tokens]:
    """The expert's way and that of repeating, in turn; one in four of the repeating ones ends with `limit` tokens."""
    if len(ways) < 2 or not limit:
        return [*ways]
    expert, (token_ids, mask) = ways
    last = sum(1 for _ in itertools.takewhile(bool, reversed(mask)))
    more = max(0, limit - last)
    unending = [*token_ids, *range(VOCABULARY - more, VOCABULARY)], [*mask, *[True] * more]
    return [expert, (token_ids, mask)] * (UNENDING - 1) + [expert, unending]


def _encode(messages: list[Message], chat: ChatFormat | None) -> Tokens:
    if chat is not None:
        return chat.encode_conversation(messages)
    token_ids, mask = list[int](), list[bool]()
    for message in messages:
        words = [message["role"], "\n", *WORDS.findall(message["content"]), "<end>", "\n"]
        token_ids += [zlib.crc32(word.encode()) % VOCABULARY for word in words]
        replied = message["role"] == "assistant" and message.get("weight", 1) != 0
        mask += [False, False] + [replied] * (len(words) - 3) + [False]
    while mask and not mask[-1]:  # nothing is behind the last reply
        mask.pop(), token_ids.pop()
    return token_ids, mask
