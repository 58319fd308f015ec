"""The sentences in which scripted players talk about scores. The module does not know the speaker, or the time."""

from slimrl_envs.matching_game.rules.beliefs import Grid
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.parser import Cell


def ask_for_score(deal: Deal, cell: Cell) -> str:
    """A question for one score."""
    reviewer, paper = names_of(deal, cell)
    return f"What is your score for {reviewer} and {paper}?"


def tell_score(deal: Deal, cell: Cell, seen: Grid) -> str:
    """A statement of one score as the player sees it, or that it sees none."""
    reviewer, paper = names_of(deal, cell)
    score = seen[cell[0]][cell[1]]
    return f"I do not know {reviewer} for {paper}." if score is None else f"{reviewer} for {paper}: {score}."


def names_of(deal: Deal, cell: Cell) -> tuple[str, str]:
    """The short names of a reviewer and a paper."""
    return deal.short_reviewers[cell[0]], deal.short_papers[cell[1]]
