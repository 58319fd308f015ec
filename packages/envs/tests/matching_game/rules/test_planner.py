"""The planner plans by what it sees and hears, writes down how, asks about its plan, and proposes it."""

import re

import pytest

from packages.envs.tests.matching_game.rules.deals import against_shy, some_deals
from slimrl_envs.matching_game.rules.beliefs import USUAL
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.game import Propose, Say
from slimrl_envs.matching_game.rules.planner import Planner
from slimrl_envs.matching_game.rules.protocol import parse_heard

NUMBERED = re.compile(r"(\w+ \w+) (low )?(\d+)")


def three_by_three(*known: tuple[int, int], scale: float = 10.0) -> Deal:
    """The first player sees these pairs alone, of 10, 20 ... 90 times `scale`; the other one all others."""
    table = ((10, 20, 30), (40, 50, 60), (70, 80, 90))
    seen = tuple(tuple((r, p) in known for p in range(3)) for r in range(3))
    unseen = tuple(tuple(not cell for cell in row) for row in seen)
    papers, reviewers = ("BLEU", "Electra", "GloVe"), ("Ava Li", "Bo Ek", "Cy Fox")
    return Deal(table, (seen, unseen), (scale, 1.0), papers, reviewers, "g")


@pytest.mark.slow
def test_it_proposes_with_its_last_message_and_asks_again_after_a_rejection() -> None:
    acts = []
    for deal in some_deals(3, 40):
        for max_turns, num_questions in ((6, 9), (12, 1)):
            game = against_shy(deal, Planner(deal, 0, max_turns, num_questions), 0, max_turns)
            acts.append([type(act) for who, act in game.history if who == 0])
    assert [Say, Say, Propose] in acts and [Say, Propose, Say, Say, Say, Propose] in acts
    assert all(Propose in each for each in acts)


@pytest.mark.parametrize(
    ("deal", "thought"),
    [
        # The largest number is in the plan, and a low one is not.
        (
            three_by_three((2, 2), (0, 0)),
            "Cy GloVe 900. Ava BLEU low 100, Bo Electra ? or Ava Electra ?, Bo BLEU ?: "
            "Bo BLEU ?, Ava Electra ?, Cy GloVe.",
        ),
        # Of two ways that look the same, the one in the order of the table.
        (
            three_by_three((2, 2)),
            "Cy GloVe 900. Ava BLEU ?, Bo Electra ? or Ava Electra ?, Bo BLEU ?: Ava BLEU ?, Bo Electra ?, Cy GloVe.",
        ),
        # Where all numbers are low it begins with a pair that has none.
        (
            three_by_three((0, 0), (1, 1), scale=1.0),
            "Ava Electra ?. Bo BLEU ?, Cy GloVe ? or Bo GloVe ?, Cy BLEU ?: Bo BLEU ?, Ava Electra ?, Cy GloVe ?.",
        ),
        # Of low numbers the largest, if there must be one.
        (
            three_by_three((0, 0), (0, 1), (0, 2), scale=2.0),
            "Ava GloVe low 60. Bo BLEU ?, Cy Electra ? or Bo Electra ?, Cy BLEU ?: Bo BLEU ?, Cy Electra ?, Ava GloVe.",
        ),
    ],
)
def test_it_writes_down_how_it_comes_to_a_plan(deal: Deal, thought: str) -> None:
    player = Planner(deal, 0, 12, 1)
    player.reply("")
    assert player.thought == thought


def test_what_it_asks_about_is_the_first_open_pair_of_its_plan_and_what_it_proposes_is_the_plan() -> None:
    num_asked = num_proposed = 0
    for deal in some_deals(3, 30):
        player = Planner(deal, 0, 8, 2)
        heard = ""
        for _ in range(3):
            reply = player.reply(heard)
            for pair, low, number in NUMBERED.findall(player.thought):
                names = zip((deal.short_reviewers, deal.short_papers), pair.split(), strict=True)
                reviewer, paper = (known.index(name) for known, name in names)
                assert deal.seen(0)[reviewer, paper] == int(number) and bool(low) == (int(number) < USUAL)
            plan = re.findall(r"(\w+) (\w+)( \?)?", player.thought.rpartition(": ")[2])
            open_pairs = [(reviewer, paper) for reviewer, paper, mark in plan if mark]
            act = parse_heard(reply, deal)
            if isinstance(act, Propose):
                names = [deal.short_reviewers[reviewer] for reviewer in act.assignment]
                assert names == [reviewer for reviewer, _, _ in plan]
                num_proposed += 1
                break
            if open_pairs:
                assert reply.endswith("for {} and {}?".format(*open_pairs[0]))
                num_asked += 1
            heard = "[message] I do not know that one."
    assert num_asked > 40 and num_proposed == 30


def test_what_it_is_told_changes_the_plan_and_what_nobody_tells_is_not_asked_again() -> None:
    deal = three_by_three((2, 2))
    player = Planner(deal, 0, 12, 4)
    assert player.reply("") == "[message] What is your score for Ava and BLEU?"
    player.reply("[message] Ava for BLEU: 7.")
    assert player.thought.startswith("Cy GloVe 900. Ava BLEU low 7, ") and player.thought.endswith(
        ": Bo BLEU ?, Ava Electra ?, Cy GloVe."
    )
    player.reply("[message] I do not know Bo for BLEU.")
    assert "Ava Electra ?, Bo BLEU unknown: Bo BLEU, Ava Electra ?, Cy GloVe." in player.thought
    player.reply("[message] Ava for Electra: 950.")
    assert player.thought.startswith("Ava Electra 950. ")


def test_with_two_papers_there_is_one_way_to_go_on_and_after_a_rejection_another_plan() -> None:
    deal = some_deals(2, 1)[0]
    player = Planner(deal, 0, 12, 0)
    first = player.reply("")
    assert " or " not in player.thought
    heard = "[reject]\n\n[message] That looks too low from here."
    while (second := player.reply(heard)).startswith("[message]"):
        heard = "[message] I do not know that one."
    assert first.startswith("[propose]") and second.startswith("[propose]") and first != second
