"""Both sides of the matching game in the ordinary agent loop, played by scripts that share what they know."""

import asyncio
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from packages.envs.tests.matching_game.rules.players import TellingPlayer
from slimrl.inference.client import Completion
from slimrl.rollout.episode import EpisodeSpec
from slimrl.rollout.places import run_groups
from slimrl.rollout.self_play import self_play_specs
from slimrl.types import SamplingParams
from slimrl_envs.matching_game.environment import MatchingTaskset
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.game_files import deal_of
from slimrl_envs.matching_game.rules.protocol import LAST_MESSAGE, MUST_ANSWER
from tests.rollout.scripted import CHAT, LOGPROB, TOKENIZER, VERSION, make_context

NUM_GAMES = 6


@dataclass
class TellingPlayers:
    """Says what a talker says who reads only what stands in the prompt; `silent` are players who say nothing legal."""

    deals: list[Deal]
    silent: tuple[int, ...] = ()
    players: dict[tuple[int, int], TellingPlayer] = field(default_factory=dict)

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        await asyncio.sleep(0)
        text = CHAT.text(prompt)
        place, player = next(
            (place, player)
            for place, deal in enumerate(self.deals)
            for player in (0, 1)
            if deal.table_text(player) in text
        )
        heard = text.rpartition("user\n")[2].removesuffix("\nassistant\n")
        for note in (self.deals[place].table_text(player), MUST_ANSWER, LAST_MESSAGE):
            heard = heard.replace(note, "")
        talker = self.players.setdefault((place, player), TellingPlayer(self.deals[place], player))
        said = "..." if player in self.silent else talker.reply(heard.strip())
        token_ids = (*TOKENIZER.encode(said, add_special_tokens=False)[: params.max_tokens - 1], CHAT.end_of_turn)
        return Completion(token_ids, (LOGPROB,) * len(token_ids), (VERSION,) * len(token_ids), "stop")


def play(silent: tuple[int, ...] = (), **limits: Any) -> tuple[list[list[Any]], list[Deal]]:
    taskset = MatchingTaskset(n=4, partner="self", num_train=NUM_GAMES, max_errors=2)
    tasks = taskset.tasks("train")
    deals = [deal_of(task.data["game_state"], task.id) for task in tasks]
    player = make_context(TellingPlayers(deals, silent), **({"seq_len": 20_000, "timeout_s": 60.0} | limits))
    specs = [EpisodeSpec(taskset, task, SamplingParams(max_tokens=1000)) for task in tasks]
    return asyncio.run(run_groups([self_play_specs(spec) for spec in specs], player)), deals


def test_two_who_share_what_they_know_do_better_than_either_alone_and_are_rewarded_alike():
    tables, deals = play()
    assert [rollout.failure for table in tables for rollout in table] == [""] * 2 * NUM_GAMES
    assert all(first.reward == second.reward for first, second in tables)
    assert [[rollout.role for rollout in table] for table in tables] == [["player 1", "player 2"]] * NUM_GAMES
    own = fmean(deal.score(deal.own_best(player)) for deal in deals for player in (0, 1))
    assert fmean(first.reward for first, _ in tables) > own + 0.1


def test_each_is_trained_on_its_own_words_alone():
    (first, second), *_ = play()[0]
    for mine, other in ((first, second), (second, first)):
        own = [message["content"] for message in mine.messages if message["role"] == "assistant"]
        sampled = [t for t, trained in zip(mine.token_ids_T, mine.loss_mask_T, strict=True) if trained]
        assert CHAT.text(sampled) == "".join(own)
        read = [message["content"] for message in mine.messages if message["role"] == "user"]
        said = [message["content"] for message in other.messages if message["role"] == "assistant"]
        assert all(any(text in heard for heard in read) for text in said if text != "[accept]")


def test_one_that_is_cut_off_by_limits_leaves_the_other_with_a_reason():
    tables, _ = play(silent=(0,), max_turns=2)
    assert all(first.metrics["unfinished"] == 1.0 and first.reward == 0.0 for first, _ in tables)
    assert all(second.failure == "partner_left" for _, second in tables)
