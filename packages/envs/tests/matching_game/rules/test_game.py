"""Turns, proposals, errors and the reward."""

import random

import pytest

from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.game import Accept, Act, IllegalAct, MatchingGame, Propose, Reject, Say
from slimrl_envs.matching_game.rules.generator import deals, upstream_deal

DEAL = next(deals(random.Random(0), 3))
ANY = Propose((0, 1, 2))


def game(**limits: int) -> MatchingGame:
    return MatchingGame(DEAL, **limits)


def random_act(rng: random.Random, game: MatchingGame) -> Act:
    """A legal one; agreements are rare."""
    if game.proposal is not None:
        return Accept() if rng.random() < 0.1 else Reject()
    return Say(f"number {rng.randrange(100)}") if rng.random() < 0.5 else Propose(shuffled(rng, game.deal))


def shuffled(rng: random.Random, deal: Deal) -> tuple[int, ...]:
    return tuple(rng.sample(range(deal.size), deal.size))


def test_upstream_bug_2_the_reward_is_the_score_of_what_was_agreed_on() -> None:
    deal = upstream_deal(0)
    ongoing = MatchingGame(deal)
    ongoing.play(0, Propose(tuple(range(8))))
    assert ongoing.reward == 0.0 and not ongoing.is_over
    ongoing.play(1, Accept())
    assert ongoing.is_over and ongoing.agreed == tuple(range(8)) and ongoing.proposal is None
    assert ongoing.reward == pytest.approx(360 / 604)


def test_a_rejected_proposal_is_gone_and_the_rejecter_goes_on() -> None:
    ongoing = game()
    ongoing.play(0, ANY)
    ongoing.play(1, Reject())
    assert ongoing.proposal is None and ongoing.turn == 1
    ongoing.play(1, Propose((2, 1, 0)))
    ongoing.play(0, Accept())
    assert ongoing.agreed == (2, 1, 0)


@pytest.mark.parametrize(
    ("before", "act", "message"),
    [
        ([], Accept(), "no proposal to accept"),
        ([], Reject(), "no proposal to reject"),
        ([ANY, Reject()], Accept(), "no proposal to accept"),
        ([ANY], Say("wait"), "waits for an answer"),
        ([ANY], Propose((2, 1, 0)), "waits for an answer"),
        ([], Say("  \n"), "message is empty"),
        ([], Propose((0, 1)), "each of the 3 papers"),
        ([], Propose((0, 1, 1)), "each of the 3 papers"),
        ([], Propose((1, 2, 3)), "each of the 3 papers"),
    ],
)
def test_upstream_bug_4_an_illegal_act_is_no_message_and_leaves_the_turn(
    before: list[Act], act: Act, message: str
) -> None:
    ongoing = game()
    for earlier in before:
        ongoing.play(ongoing.turn, earlier)
    player, messages, history, proposal = ongoing.turn, ongoing.num_messages, [*ongoing.history], ongoing.proposal
    with pytest.raises(IllegalAct, match=message):
        ongoing.play(player, act)
    assert (ongoing.turn, ongoing.num_messages, ongoing.history, ongoing.proposal) == (
        player, messages, history, proposal,
    )  # fmt: skip
    assert ongoing.num_errors[player] == 1 and ongoing.num_errors[1 - player] == 0


def test_who_makes_too_many_errors_loses_the_game_for_both() -> None:
    ongoing = game(max_errors=2)
    ongoing.play(0, Say("hello"))
    for _ in range(2):
        with pytest.raises(IllegalAct):
            ongoing.play(1, Accept())
        assert not ongoing.is_over
    ongoing.play(1, Say("sorry"))
    with pytest.raises(IllegalAct):
        ongoing.play(0, Accept())
    assert not ongoing.is_over, "errors of the two are counted apart"
    ongoing.play(0, Say("me too"))
    with pytest.raises(IllegalAct):
        ongoing.play(1, Accept())
    assert ongoing.is_over and ongoing.reward == 0.0


@pytest.mark.parametrize(("answer", "reward"), [(Accept(), DEAL.score((0, 1, 2))), (Reject(), 0.0)])
def test_a_proposal_that_is_the_last_message_may_be_answered(answer: Act, reward: float) -> None:
    ongoing = game(max_turns=2)
    ongoing.play(0, Say("hm"))
    ongoing.play(1, ANY)
    assert ongoing.messages_left == 0 and not ongoing.is_over
    ongoing.play(0, answer)
    assert ongoing.is_over and ongoing.reward == reward


def test_acting_out_of_turn_or_after_the_end_is_a_bug_of_the_caller() -> None:
    ongoing = game()
    with pytest.raises(ValueError, match="it is the turn of player 0"):
        ongoing.play(1, Say("me first"))
    with pytest.raises(ValueError, match="it is the turn of player 0"):
        ongoing.count_error(1)
    ongoing.play(0, ANY)
    ongoing.play(1, Accept())
    with pytest.raises(ValueError, match="the game is over"):
        ongoing.play(0, Say("more"))
    assert ongoing.num_errors == [0, 0]


def test_upstream_bug_6_a_game_played_again_from_its_history_goes_on_identically() -> None:
    """A game is its deal and its acts; whose turn it is and which proposal stands follows from these."""
    for seed in range(50):
        rng, ongoing = random.Random(seed), game(max_turns=8)
        for _ in range(rng.randrange(8)):
            if not ongoing.is_over:
                ongoing.play(ongoing.turn, random_act(rng, ongoing))
        restored = game(max_turns=8)
        for player, act in ongoing.history:
            restored.play(player, act)
        num_acts = len(ongoing.history)
        while not ongoing.is_over:
            num_acts += 1
            assert (restored.turn, restored.proposal) == (ongoing.turn, ongoing.proposal)
            act = random_act(rng, ongoing)
            ongoing.play(ongoing.turn, act)
            restored.play(restored.turn, act)
        assert restored.is_over and restored.reward == ongoing.reward and restored.history == ongoing.history
        assert num_acts <= 16 and ongoing.reward == (DEAL.score(ongoing.agreed) if ongoing.agreed else 0.0)
        assert [player for player, act in ongoing.history if not isinstance(act, Reject)][:3] == [0, 1, 0][:num_acts]
