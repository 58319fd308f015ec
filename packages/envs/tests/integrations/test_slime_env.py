"""The matching game as SLIME's own multi-turn rollout asks for it: without `await`, inside a running event loop."""

import asyncio
import random
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from packages.envs.tests.episodes import replies_of
from packages.envs.tests.integrations.restated import Sample
from packages.envs.tests.matching_game.rules.deals import new_deal
from slimrl.errors import UserError
from slimrl.types import Task
from slimrl_envs.matching_game.environment import MatchingTaskset
from slimrl_envs.matching_game.rules.game_files import game_state
from slimrl_envs.slime.env import MatchingEnv, build_env
from slimrl_envs.slime.rows import Settings
from tests.io.replying import completion, server

STATE = game_state(new_deal(random.Random(3), 3, "g"))
TASK = Task("slime", {"game_state": STATE})


def expert_replies() -> list[str]:
    return replies_of(MatchingTaskset().scripts["solver"](TASK, 0))


def test_a_whole_game() -> None:
    env = MatchingEnv(Settings(max_turns=20))
    observation, info = env.reset(STATE)
    first = observation
    assert "Reviewer Paper Similarity Scores:" in observation["obs_str"]
    assert info == {"game_id": "slime"}
    *replies, last = expert_replies()
    for reply in replies:
        observation, done, info = env.step(reply)
        assert not done and info["reward"] == 0.0
        assert env.format_observation(observation) == {"role": "user", "content": observation["obs_str"]}
    _, done, info = env.step(last)
    assert done and env.get_normalized_reward() == info["reward"] == info["score"] > 0.0
    with pytest.raises(UserError, match="call `reset` first"):
        env.step("[accept]")
    for given in (STATE, {"game_state": STATE}):  # another game begins anew
        again, _ = env.reset(given)
        assert again == first and env.get_normalized_reward() == 0.0
        assert env.step("no tag")[2]["errors"] == 1.0
    env.close()


def test_replies_may_end_as_sglang_leaves_them(tiny_dir: Path) -> None:
    """SLIME asks it to keep special tokens, and the one that it stopped at."""

    def played(end: str) -> tuple[float, list[str]]:
        sample = Sample(index=0, metadata=dict(STATE))
        env = build_env(sample=sample, args=Namespace(max_turns=20, hf_checkpoint=str(tiny_dir)))
        env.reset()
        observed = [env.step(reply + end)[0]["obs_str"] for reply in expert_replies()]
        env.close()
        return sample.reward, observed

    plain = played("")
    assert plain[0] > 0.0
    assert played("<|im_end|>") == plain and played("<|im_end|><|endoftext|>") == plain
    sample = Sample(index=0, metadata=dict(STATE))
    env = build_env(sample=sample, args=Namespace(hf_checkpoint=str(tiny_dir)))
    env.reset()
    assert env.step("[message] What is <|im_end|>?")[2]["errors"] == 0.0  # in the middle it is text
    env.close()


def test_a_sample_brings_its_game_and_is_given_the_reward() -> None:
    async def inside_slime() -> Sample:
        sample = Sample(index=0, prompt="p", metadata=dict(STATE))
        env = build_env(sample=sample, args=Namespace(max_turns=20, matching_args={"max_errors": 1}))
        _, info = env.reset()
        assert info == {"game_id": "slime/0"}
        assert sample.reward == 0.0
        done = False
        for _ in range(2):
            _, done, _ = env.step("no tag")
        assert done
        assert sample.metadata["metrics"]["errors"] == 2.0
        env.close()
        return sample

    sample = asyncio.run(inside_slime())
    assert sample.reward == sample.metadata["score"] == 0.0
    assert sample.metadata["table"] == STATE["table"]


def test_samples_with_the_same_settings_share_a_partner_and_its_budget() -> None:
    """A language model is asked once whether it is there, not for each sample."""
    llm = {"max_requests": 4}
    with server(lambda asked: completion("[message] Which paper?")) as (url, asked):
        args = Namespace(matching_args={"partner": "llm", "llm": {"base_url": url, **llm}}, matching_timeout_s=5)
        for _ in range(3):
            env = build_env(sample=Sample(index=0, metadata=dict(STATE)), args=args)
            env.reset()
            env.step("[message] Hello")
            env.close()
        env = build_env(sample=Sample(index=0, metadata=dict(STATE)), args=args)
        env.reset()
        with pytest.raises(UserError, match="has used up its budget: 4 requests"):
            env.step("[message] Hello")
        env.close()
    assert len(asked) == 4


def test_the_time_to_wait_for_the_partner_is_that_of_the_config_and_its_failure_ends_one_game() -> None:
    def slowly(asked: Any) -> Any:
        time.sleep(0.4 if len(requests) > 1 else 0)
        return completion("[message] Which paper?")

    with server(slowly) as (url, requests):
        args = Namespace(matching_args={"partner": "llm", "llm": {"base_url": url}}, matching_timeout_s=0.1)
        sample = Sample(index=0, metadata=dict(STATE))
        env = build_env(sample=sample, args=args)
        env.reset()
        observation, done, info = env.step("[message] Hello")
        assert done and observation["obs_str"] == "" and info["reward"] == 0.0
        assert sample.remove_sample and sample.reward == 0.0
        assert sample.metadata["failure"] == info["failure"] and "timeout" in info["failure"]
        with pytest.raises(UserError, match="call `reset` first"):
            env.step("[message] Hello")
        env.close()


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda env: env.reset(), "sample 0 has no game: neither its metadata nor its label is a game_state"),
        (lambda env: env.step("[accept]"), "there is no game in progress"),
        (lambda env: build_env(None, Namespace(matching_args={"role": 2})), "matching_args.role = 2 cannot act here"),
    ],
)
def test_a_missing_game_is_named(work: Any, message: str) -> None:
    env = MatchingEnv(Settings())
    with pytest.raises(UserError) as error:
        work(env)
    assert message in str(error.value)
    env.close()
