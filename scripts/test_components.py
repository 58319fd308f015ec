"""Tests the components of the matching game and of its training with SLIME: data, partner, environment and counts of
questions. Seconds on a CPU; no model, server or key is needed.

    uv run python scripts/test_components.py

Prints `ALL TESTS PASSED!` if they did.
"""

import argparse
import sys
from itertools import islice

import check_installed  # noqa: F401  # ends the script where slimrl is missing

from slimrl.types import Task
from slimrl_envs.matching_game.environment import MatchingTaskset
from slimrl_envs.matching_game.rules.game_files import game_state
from slimrl_envs.matching_game.rules.generator import deals_of_seed


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=raw).parse_args()
    from slimrl_envs.slime.env import MatchingEnv, Settings  # loads PyTorch, which help does not need

    for deal in islice(deals_of_seed(3, seed=0), 5):
        state = game_state(deal)
        conversation = MatchingTaskset(max_turns=20).scripts["solver"](Task("slime", {"game_state": state}), 0)
        env = MatchingEnv(Settings(max_turns=20))
        env.reset(state)
        *_, (_, done, info) = [env.step(m["content"]) for m in conversation if m["role"] == "assistant"]
        env.close()
        print(f"a game of {info['messages']:.0f} messages, reward {info['reward']:.2f}")
        if not (done and deal.requires_communication and info["questions"] and env.get_normalized_reward()):
            sys.exit("FAILED: that game should have questions and end with a reward")
    print("ALL TESTS PASSED!")
    return 0


if __name__ == "__main__":
    sys.exit(main())
