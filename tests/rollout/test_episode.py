"""The agent loop: token-exact transcripts, limits, and bad episodes that are data."""

import asyncio
import json
import math
import re
from dataclasses import replace

import pytest

from slimrl.errors import UserError
from slimrl.models.chat.template import ChatFormat
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.rollout.episode import mean_metrics, run_episode
from slimrl.rollout.games import run_groups
from slimrl.types import Rollout, StopReason, Task, Turn
from tests.rollout.scripted import (
    CHAT,
    LOGPROB,
    STEPS,
    TOKENIZER,
    VERSION,
    Misbehaves,
    Quiz,
    ScriptedClient,
    make_attempt,
    make_context,
    user,
)
from tests.tiny import tiny_tokenizer

END = TOKENIZER.eos_token_id


def reply(text: str, end: bool = True) -> list[int]:
    return [*TOKENIZER.encode(text, add_special_tokens=False), *([END] if end else [])]


def play(make, client, **limits):
    max_tokens = limits.pop("max_tokens", 50)
    return asyncio.run(run_episode(make_attempt(make, max_tokens), make_context(client, **limits)))


def test_a_two_turn_transcript_is_exact_to_the_token_and_samples_are_kept_as_they_were():
    odd = [*(TOKENIZER.encode(c, add_special_tokens=False)[0] for c in "the"), END]  # not how "the" is tokenised
    assert TOKENIZER.encode("the", add_special_tokens=False) != odd[:-1]
    client, quiz = ScriptedClient([odd, reply("B")]), Quiz()
    rollout = play(lambda task: quiz, client)
    assert TOKENIZER.decode(rollout.token_ids_T) == (
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nthe<|im_end|>\n"
        "<|im_start|>user\nwrong<|im_end|>\n<|im_start|>assistant\nB<|im_end|>"
    )
    sampled = [token for token, mask in zip(rollout.token_ids_T, rollout.loss_mask_T, strict=True) if mask]
    assert sampled == [*odd, *reply("B")]
    assert rollout.logprobs_T == tuple(LOGPROB if mask else 0.0 for mask in rollout.loss_mask_T)
    assert rollout.versions_T == tuple(VERSION if mask else -1 for mask in rollout.loss_mask_T)
    assert [prompt for prompt, _ in client.asked] == [[*rollout.token_ids_T[: turn[0]]] for turn in rollout.turns]
    assert quiz.replies == ["the", "B"]
    assert [(m["role"], m["content"]) for m in rollout.messages] == [
        ("user", "q"),
        ("assistant", "the"),
        ("user", "wrong"),
        ("assistant", "B"),
    ]
    assert (rollout.task_id, rollout.reward, rollout.failure) == ("a task", 0.75, "")
    assert rollout.metrics == {"tries": 2.0, "turns": 2.0, "truncated": 0.0, "unfinished": 0.0, "context_full": 0.0}


def test_thoughts_that_the_prompt_opens_are_shown_and_no_token_changes():
    template = TOKENIZER.chat_template.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n")
    tokenizer = tiny_tokenizer(chat_template=template)
    quiz, said = Quiz(), [reply("Perhaps <answer>6</answer>, or"), reply("Hm.</think>B")]
    rollout = asyncio.run(
        run_episode(make_attempt(lambda task: quiz), make_context(ScriptedClient(said), ChatFormat(tokenizer)))
    )
    assert quiz.replies == ["<think>\nPerhaps <answer>6</answer>, or", "<think>\nHm.</think>B"]
    assert quiz.replies == [one["content"] for one in rollout.messages if one["role"] == "assistant"]
    assert list(map(without_thoughts, quiz.replies)) == ["", "B"]
    assert TOKENIZER.decode(rollout.token_ids_T) == (
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nPerhaps <answer>6</answer>, or<|im_end|>\n"
        "<|im_start|>user\nwrong<|im_end|>\n<|im_start|>assistant\n<think>\nHm.</think>B<|im_end|>"
    )


def test_a_turn_that_was_cut_off_is_closed_for_the_next_one():
    rollout = play(lambda task: Quiz(), ScriptedClient([reply("abc")[:2], reply("B")]), max_tokens=2)
    assert rollout.metrics["truncated"] == 0.0
    cut = play(lambda task: Quiz(), ScriptedClient([reply("abcdef"), reply("B")]), max_tokens=3)
    assert cut.metrics["truncated"] == 1.0
    for each in (rollout, cut):
        assert TOKENIZER.decode(each.token_ids_T).count("<|im_end|>\n<|im_start|>user\nwrong") == 1


def test_every_turn_has_a_seed_and_the_room_of_its_own():
    client = ScriptedClient([reply("A"), reply("B")])
    rollout = play(lambda task: Quiz(), client, seq_len=60, max_tokens=1000)
    assert [params.seed for _, params in client.asked] == [100, 101]
    assert [params.max_tokens for _, params in client.asked] == [60 - len(prompt) for prompt, _ in client.asked]
    assert rollout.metrics["unfinished"] == 0.0 and rollout.stop_reason is StopReason.DONE


class Endless:
    """Never done."""

    async def start(self):
        return [user("q")]

    async def step(self, reply):
        return Turn(done=False, messages=[user("go on")], reward=5.0, metrics={"length": float(len(reply))})


def test_an_episode_ends_at_its_last_turn_with_what_its_turns_earned_and_that_ones_metrics():
    rollout = play(lambda task: Endless(), ScriptedClient([reply("A"), reply("AA"), reply("AAA")]), max_turns=3)
    assert (rollout.reward, rollout.turn_rewards, rollout.failure) == (15.0, (5.0, 5.0, 5.0), "")
    assert rollout.metrics == {"length": 3.0, "turns": 3.0, "truncated": 0.0, "unfinished": 1.0, "context_full": 0.0}
    assert rollout.stop_reason is StopReason.MAX_TURNS
    assert rollout.loss_mask_T[-1]  # what the environment said last is read by nobody


class Scored(Endless):
    """Never done, but has a reward where a limit cuts it off."""

    async def cut_off(self):
        return Turn(done=True, reward=-7.0, metrics={"cut": 1.0})


@pytest.mark.parametrize(("seq_len", "max_turns", "num"), [(400, 2, 2), (40, 100, 1)])
def test_an_environment_scores_an_episode_that_a_limit_cuts_off(seq_len, max_turns, num):
    client = ScriptedClient([reply("hello")] * num)
    rollout = play(lambda task: Scored(), client, seq_len=seq_len, max_turns=max_turns)
    assert rollout.turn_rewards == (5.0,) * (num - 1) + (-2.0,) and rollout.metrics["cut"] == 1.0
    assert rollout.metrics["unfinished"] == 1.0


@pytest.mark.parametrize("response_len", [10, 25])
def test_a_response_never_outgrows_its_limit_which_counts_the_environments_tokens(response_len):
    context = make_context(ScriptedClient([reply("hello")]), max_turns=100)
    context = replace(context, response_len=response_len)
    rollout = asyncio.run(run_episode(make_attempt(lambda task: Endless()), context))
    begin = rollout.loss_mask_T.index(True)
    assert 0 < len(rollout.token_ids_T) - begin <= response_len and rollout.stop_reason is StopReason.CONTEXT_FULL


@pytest.mark.parametrize("seq_len", range(40, 60))
def test_an_episode_never_outgrows_the_context(seq_len):
    rollout = play(lambda task: Endless(), ScriptedClient([reply("hello")]), seq_len=seq_len, max_turns=100)
    assert (rollout.reward, rollout.failure) == (5.0 * len(rollout.turns), "")
    assert len(rollout.token_ids_T) <= seq_len
    assert rollout.loss_mask_T[-1]
    assert {rollout.metrics[name] for name in ("truncated", "unfinished", "context_full")} == {1.0}
    assert rollout.stop_reason is StopReason.CONTEXT_FULL


def test_a_prompt_that_fills_the_context_is_a_named_drop():
    length = len(CHAT.opening([user("q")]))
    assert play(lambda task: Quiz(), ScriptedClient([reply("A")]), seq_len=length).failure == "prompt_too_long"
    assert play(lambda task: Quiz(), ScriptedClient([reply("A")]), seq_len=length + 1).failure == ""


DROPS = {
    "constructor raises": ("environment_error", "ValueError: no such task"),
    "start raises": ("environment_error", "KeyError: 'missing'"),
    "start gives text": ("environment_error", "a message needs a role"),
    "start gives nothing": ("environment_error", "NoneType"),
    "step raises": ("environment_error", "ZeroDivisionError: by zero"),
    "own time-out": ("environment_error", "TimeoutError: the database did not answer"),
    "own cancellation": ("environment_error", "cancelled"),
    "reward nan": ("nonfinite_reward", "nan"),
    "reward none": ("environment_error", "NoneType"),
    "metric is text": ("environment_error", "yes"),
    "returns a number": ("environment_error", "must return a Turn, not float"),
    "message without content": ("environment_error", "a message needs a role"),
    "message content is a list": ("environment_error", "a message needs a role"),
    "message content is half a pair": ("environment_error", "half of a surrogate pair"),
    "gives nothing to read": ("environment_error", "gave no messages to read"),
    "speaks for the policy": ("environment_error", "gave an assistant message"),
}


@pytest.mark.parametrize("fault", DROPS)
def test_an_environment_that_fails_is_a_named_drop(fault):
    rollout = play(lambda task: Misbehaves(fault), ScriptedClient([reply("A")]))
    reason, detail = DROPS[fault]
    assert rollout.failure == reason
    assert detail in rollout.failure_detail
    assert math.isnan(rollout.reward)


# What catches everything also catches the end of its own coroutine, of which Python complains.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("fault", [fault for fault in STEPS if "for ever" in fault])
def test_an_environment_that_never_ends_is_dropped_and_the_knob_named(fault):
    rollout = play(lambda task: Misbehaves(fault), ScriptedClient([reply("A")]), timeout_s=0.05)
    assert rollout.failure == "timeout"
    assert "longer than episode_timeout_s = 0.05 s" in rollout.failure_detail


def test_an_environment_that_is_cancelled_can_tidy_up():
    environment = Misbehaves("tidies up when cancelled")
    rollout = play(lambda task: environment, ScriptedClient([reply("A")]), timeout_s=0.05)
    assert (rollout.failure, environment.tidy) == ("timeout", [True])


class NotAsync:
    """Written by someone who forgot `async`."""

    async def start(self):
        return [user("q")]

    def step(self, reply):
        return Turn(done=True, reward=1.0)


class Halfway:
    """Has no `step` at all."""

    async def start(self):
        return [user("q")]


class AsksALibrary:
    """Fails within the standard library: the line of its own that asked it is the one to look at."""

    async def start(self):
        json.loads("{")

    async def step(self, reply):
        raise AssertionError


@pytest.mark.parametrize(
    ("make", "detail"),
    [
        (NotAsync, r"write `async def step\(self, reply\)`"),
        (Halfway, "no attribute 'step'"),
        (lambda: Misbehaves("step raises"), r"ZeroDivisionError: by zero \(scripted\.py:\d+, in raises\)$"),
        (AsksALibrary, r"\(test_episode\.py:\d+, in start\)$"),
    ],
)
def test_a_failure_says_what_to_write_or_the_line_of_the_environments_own_that_failed(make, detail):
    rollout = play(lambda task: make(), ScriptedClient([reply("A")]))
    assert rollout.failure == "environment_error" and re.search(detail, rollout.failure_detail)


def test_a_mistake_in_the_configuration_stops_the_run():
    def make(task):
        raise UserError("set `args.path`")

    with pytest.raises(UserError, match=r"set `args\.path`"):
        play(make, ScriptedClient([reply("A")]))


def test_one_bad_episode_spoils_no_other_and_the_order_is_kept():
    faults = ["", "step raises", "polls for ever", "", "waits for ever", "constructor raises", ""]
    specs = [make_attempt(lambda task, fault=fault: Misbehaves(fault)) for fault in faults]
    context = make_context(ScriptedClient([reply("A")]), timeout_s=0.5)
    rollouts = [rollout for (rollout,) in asyncio.run(run_groups([[one] for one in specs], context))]
    expected = ["", "environment_error", "timeout", "", "timeout", "environment_error", ""]
    assert [rollout.failure for rollout in rollouts] == expected
    assert [rollout.reward for rollout in rollouts if not rollout.failure] == [1.0] * 3


class UsesUp:
    """Takes its question out of the task, and writes the reply into it."""

    def __init__(self, task):
        self._task = task

    async def start(self):
        return [user(self._task.data["questions"].pop())]

    async def step(self, reply):
        self._task.data["replies"].append(reply)
        return Turn(done=True, reward=float(len(self._task.data["replies"])))


def test_an_environment_that_changes_its_task_changes_no_later_episode():
    task = Task("a task", {"questions": ["q"], "replies": []})
    specs = [replace(make_attempt(UsesUp), task=task) for _ in range(3)]
    context = make_context(ScriptedClient([reply("A")]))
    rollouts = [rollout for (rollout,) in asyncio.run(run_groups([[one] for one in specs], context))]
    assert [(rollout.failure, rollout.reward) for rollout in rollouts] == [("", 1.0)] * 3
    assert task == Task("a task", {"questions": ["q"], "replies": []})


def test_a_metrics_mean_is_over_the_rollouts_that_report_it():
    reports = [{"b": 1.0}, {"b": 2.0, "a": 5.0}, {"b": 6.0}]
    rollouts = [Rollout("t", (), (), (), (), 0.0, metrics=metrics) for metrics in reports]
    means = mean_metrics(rollouts)
    assert means == {"a": 5.0, "b": 3.0}
    assert list(means) == ["a", "b"]
    assert mean_metrics([]) == {}
