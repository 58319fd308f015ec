"""The body of `scripts/test_components.py`: plays and analyzes matching games with a scripted policy.

It needs no model, server, GPU or key: tokens are bytes, and the script's replies replace SGLang's.
"""

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from slimrl.errors import UserError
from slimrl.eval.baselines import ReplayClient, turns_of
from slimrl.models.chat.stand_in import stand_in_chat
from slimrl.types import Message, Task
from slimrl_envs.matching_game.analysis.compare import analyze
from slimrl_envs.matching_game.analysis.runs import read_run
from slimrl_envs.matching_game.environment import MatchingTaskset
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.game import MatchingGame
from slimrl_envs.matching_game.rules.game_files import game_state, lines, read_games
from slimrl_envs.matching_game.rules.generator import deals_of_seed
from slimrl_envs.matching_game.rules.phrases import ask_for_score
from slimrl_envs.matching_game.rules.protocol import play_text, proposal_lines
from slimrl_envs.matching_game.rules.questions import count_questions
from slimrl_envs.matching_game.rules.shy_partner import ShyPartner
from slimrl_envs.slime.env import MatchingEnv
from slimrl_envs.slime.game_log import GameLog
from slimrl_envs.slime.rollout import MatchingRollouts
from slimrl_envs.slime.rows import Sample

NUM_PAPERS = 3
MAX_TOKENS = 100_000  # more than a game has


class ComponentError(Exception):
    """A component fails its check."""


def run_checks(checks: Mapping[str, Callable[[], str]], say: Callable[[str], None] = print) -> int:
    """Make the checks, report each, and return the exit status: 0 if all passed."""
    failed = 0
    for name, check in checks.items():
        try:
            say(f"ok      {name}: {check()}")
        except (ComponentError, UserError) as error:
            failed += 1
            say(f"FAILED  {name}: {error}")
    say(f"{failed} of {len(checks)} failed" if failed else "ALL TESTS PASSED!")
    return int(failed > 0)


def check_data() -> str:
    """Games are written to a file and read again, and talking pays in each."""
    deals = games(5)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "games.jsonl"
        path.write_bytes(b"".join(lines(deals)))
        _expect(read_games(path) == deals, "the games that were read are those that were written")
    _expect(all(deal.requires_communication for deal in deals), "talking pays in every game")
    return f"{len(deals)} games written and read"


def check_environment() -> str:
    """A game is played to its end, and the best assignment, written as text, is worth 1."""
    deal = games(1)[0]
    env = MatchingEnv(max_turns=20)
    observation, _ = env.reset(game_state(deal))
    _expect("Similarity Scores" in observation["obs_str"], "the first observation has the player's table")
    _, done, info = env.step("no tag")
    _expect(not done and info["errors"] == 1.0, "a text without a tag is an error, and the game goes on")
    env.reset(game_state(deal))
    for reply in (one["content"] for one in expert_conversation(deal) if one["role"] == "assistant"):
        _, done, info = env.step(reply)
    _expect(done and info["reward"] == env.get_normalized_reward() > 0, "the expert's game ends with a reward")
    env.close()
    game = MatchingGame(deal)
    play_text(game, 0, f"[propose] Proposal:\n{proposal_lines(deal.best_assignment, deal)}")
    _expect(game.proposal == deal.best_assignment, "the best assignment is understood")
    play_text(game, 1, "[accept]")
    _expect(game.reward == 1.0, "the best assignment is worth 1")
    return f"the expert earned {info['reward']:.2f}, the best assignment 1.00"


def check_partner() -> str:
    """The scripted partner volunteers nothing, and answers a question about one pair with its score."""
    deal = games(1)[0]
    partner = ShyPartner(deal, 1, random.Random(0))
    vague = partner.reply("[message] What do you have?")
    _expect("?" in vague and not any(letter.isdigit() for letter in vague), f"no score is volunteered: {vague}")
    seen = deal.visible_table(1)
    reviewer, paper = next((r, p) for r in range(deal.size) for p in range(deal.size) if seen[r][p] is not None)
    told = partner.reply(f"[message] {ask_for_score(deal, (reviewer, paper))}")
    _expect(str(seen[reviewer][paper]) in told, f"the score is {seen[reviewer][paper]}, and it says: {told}")
    return told


def check_questions() -> str:
    """Question marks, question words and score-seeking phrases are questions; statements of scores are not."""
    asked = [
        "What is Ava's score for BLEU?",
        "Can you tell me of Ethan",
        "The affinity between Ava and SWAG, please",
    ]
    told = ["My score for Ava and BLEU is 90.", "I have 12 for Daniel."]
    _expect(count_questions(asked).questions == len(asked), f"all of these are questions: {asked}")
    _expect(count_questions(told).questions == 0, f"these are no questions: {told}")
    return f"{len(asked)} of {len(asked) + len(told)} sentences"


def check_rollout() -> str:
    """Tokens of the policy alone are trained on, and the reward is the game's."""
    sample = play(games(1)[0], 0)
    num_trained = sum(sample.loss_mask)
    _expect(len(sample.loss_mask) == len(sample.rollout_log_probs) == sample.response_length, "lengths are equal")
    _expect(0 < num_trained < sample.response_length, "the mask has the policy's tokens, and others")
    _expect(sample.reward > 0 and sample.status is Sample.Status.COMPLETED, f"it ended with {sample.reward}")
    return f"{num_trained} of {sample.response_length} tokens are the policy's, reward {sample.reward:.2f}"


def check_analysis() -> str:
    """Games are recorded as training does it, and pictures are drawn of them."""
    with tempfile.TemporaryDirectory() as directory:
        log = GameLog(Path(directory), groups_per_step=2, text=stand_in_chat().full_text)
        for group, deal in enumerate(games(4)):
            play(deal, group, log)
        run = read_run(Path(directory))
        _expect(len(run.episodes) == 4 and run.steps == [0, 1], "four games in two steps are read")
        written = analyze([Path(directory)], Path(directory) / "plots")
        _expect(all(path.stat().st_size > 0 for path in written), "no file is empty")
        return ", ".join(path.name for path in written)


CHECKS = {
    "data": check_data,
    "environment": check_environment,
    "partner": check_partner,
    "questions": check_questions,
    "rollout": check_rollout,
    "analysis": check_analysis,
}


def games(num: int) -> list[Deal]:
    """The first games of a seed."""
    return [*islice(deals_of_seed(NUM_PAPERS, seed=0), num)]


def expert_conversation(deal: Deal) -> list[Message]:
    """A game of the script that listens, from its opening."""
    return list(MatchingTaskset(max_turns=20).scripts["solver"](Task("slime/0", {"game_state": game_state(deal)}), 0))


class Replies(ReplayClient):
    """A client that replies with given turns, and names no version of weights."""

    def __init__(self, turns: list[list[int]], end_of_turn: int) -> None:
        super().__init__(turns, end_of_turn)
        self.weight_versions: list[str] = []


@dataclass(frozen=True)
class Scripted:
    """A source of tokens for `MatchingRollouts` that replies with `turns`."""

    turns: list[list[int]]

    @asynccontextmanager
    async def client(
        self, sampling_params: Mapping[str, Any], end_of_turn: int, session: str
    ) -> AsyncIterator[Replies]:
        yield Replies(self.turns, end_of_turn)


def play(deal: Deal, group: int, log: GameLog | None = None) -> Sample:
    """The sample of one game of the script, played and recorded as in SLIME."""
    chat = stand_in_chat()
    sampler = Scripted(turns_of(chat, expert_conversation(deal)))
    rollouts = MatchingRollouts(MatchingTaskset(max_turns=20), chat, sampler, log=log)
    sample = Sample(metadata={"game_state": game_state(deal)}, group_index=group)
    return asyncio.run(rollouts.generate(None, sample, {"max_new_tokens": MAX_TOKENS}))


def _expect(condition: bool, what: str) -> None:
    if not condition:
        raise ComponentError(f"expected that {what}")
