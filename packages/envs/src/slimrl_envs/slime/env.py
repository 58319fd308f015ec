"""The matching game for SLIME's own multi-turn rollout: `rollout_interaction_env_path: slimrl.integrations.slime.env`.

SLIME's rollout (`examples/geo3k_vlm_multi_turn`) calls `build_env(sample, args)`, `reset()`, `step(text)` and other
methods as plain functions, without `await`. SLIME itself tokenises the observations, and cuts the conversation where
the model stops. If possible, use `rollout.py` instead, which also records the games. This module loads no model, but
only the tokenizer of --hf-checkpoint, for the special tokens at the end of replies.
"""

import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from slimrl.environments.base import new_episode
from slimrl.errors import RolloutError, UserError
from slimrl.rollout.answers import close_episode, start_episode, step_episode
from slimrl.rollout.failures import run_with_timeout
from slimrl.rollout.loop import run_episodes
from slimrl.types import Environment, Message
from slimrl_envs.slime.rows import Settings, game_task, read_state, task_of, taskset_of, tokenizer_of

Observation = dict[str, Any]
logger = logging.getLogger(__name__)


class MatchingEnv:
    """An environment that plays one game at a time. Its methods are plain functions, and need no event loop.

    >>> env = MatchingEnv(Settings(max_turns=20))  # doctest: +SKIP
    >>> observation, info = env.reset(row["game_state"])  # doctest: +SKIP
    >>> observation, done, info = env.step("[message] What is the score of Ava for BLEU?")  # doctest: +SKIP
    """

    def __init__(self, settings: Settings, sample: Any = None) -> None:
        """Make an environment without a game; `reset` starts one.

        The `sample` has the game, and receives the reward. Without a `sample`, `reset` needs the game. With
        `hf_checkpoint` in the settings, the special tokens of its tokenizer are removed from the end of replies.
        Without it, `step` needs replies without special tokens.
        """
        self._taskset, self._timeout_s = taskset_of(settings.environment), settings.matching_timeout_s
        none = SimpleNamespace(metadata=None, label=None, index=0, group_index=None, reward=0.0)
        self._sample = none if sample is None else sample
        self._ends = tuple(tokenizer_of(settings.hf_checkpoint).all_special_tokens) if settings.hf_checkpoint else ()
        self._episode: Environment | None = None

    def reset(self, game_state: Mapping[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Start the game `game_state`, or without it the sample's game. Returns the first observation, and `info` with
        the `game_id`. Raises UserError without a valid game."""
        self.close()
        state = read_state(dict(game_state or {}))
        task = task_of(self._sample) if state is None else game_task("slime", state)
        self._episode = new_episode(self._taskset, task)
        self._note(0.0, {})
        messages = run_episodes(run_with_timeout(start_episode(self._episode), "environment", self._timeout_s))
        return observation_of(messages), {"game_id": task.id}

    def step(self, text: str) -> tuple[Observation, bool, dict[str, Any]]:
        """Play a reply. Returns the observation, True if the game is over, and `info`.

        `info` has the `reward`, which is 0 until the game is over, and the metrics so far. If the partner fails, the
        game is over, `info` has the `failure`, and SLIME does not train on the sample. Raises UserError without a game.
        """
        if self._episode is None:
            raise UserError("slime: there is no game in progress: call `reset` first.")
        # By SLIME's defaults SGLang leaves special tokens such as `<|im_end|>` at the end of a reply.
        while end := next((end for end in self._ends if text.endswith(end)), ""):
            text = text.removesuffix(end)
        work = run_with_timeout(step_episode(self._episode, text), "environment", self._timeout_s)
        try:
            turn = run_episodes(work)
        except RolloutError as error:  # SLIME's rollout catches no exception: one failure would stop the whole run
            self.close()
            failure = f"{error.reason}: {error.detail}"
            logger.warning("a sample is not trained on: %s", failure)
            self._note(0.0, {})
            self._sample.remove_sample = True
            self._sample.metadata["failure"] = failure
            return observation_of([]), True, {"reward": 0.0, "failure": failure}
        self._note(turn.reward, turn.metrics)
        if turn.done:
            self.close()
        return observation_of(turn.messages), turn.done, {"reward": turn.reward, **turn.metrics}

    def get_normalized_reward(self) -> float:
        """Return the current reward of the last game: the agreement's share of the best value; 0 without an
        agreement."""
        return float(self._sample.reward or 0.0)

    def format_observation(self, observation: Observation) -> Message:
        """Return the chat message of an observation."""
        return {"role": "user", "content": observation["obs_str"]}

    def close(self) -> None:
        """Stop the game, if one is in progress."""
        if self._episode is not None:
            run_episodes(close_episode(self._episode))
        self._episode = None

    def _note(self, reward: float, metrics: Mapping[str, float]) -> None:
        # A sample always has a reward, 0 without an agreement, because SLIME calls a reward model for samples without a
        # reward.
        self._sample.reward = reward
        self._sample.metadata = {**(self._sample.metadata or {}), "score": reward, "metrics": dict(metrics)}


def build_env(sample: Any = None, args: Any = None) -> MatchingEnv:
    """Return the environment of a sample. SLIME's rollout calls this function. Raises UserError for settings that have
    no effect in this environment."""
    settings = Settings.of(args)
    if settings.matching_args.get("role", 1) != 1:
        raise UserError(
            "slime: matching_args.role = 2 cannot act here: the prompts of the rows show the table of player 1. Use "
            "slimrl.integrations.slime.generate, or remove it."
        )
    return MatchingEnv(settings, sample)


def observation_of(messages: Any) -> Observation:
    """Return the messages as one observation in the format of SLIME's examples."""
    return {"obs_str": "\n\n".join(message["content"] for message in messages), "role": "user"}
