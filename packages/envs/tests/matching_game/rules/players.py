"""Players that only tests need: who measure others, and who tell everything."""

from slimrl_envs.matching_game.rules.beliefs import Grid, combine_beliefs, looks_best, own_values
from slimrl_envs.matching_game.rules.deal import Deal, optimum
from slimrl_envs.matching_game.rules.game import Accept, Act, IllegalAct, MatchingGame, Propose, Reject, Say
from slimrl_envs.matching_game.rules.parser import Cell, Parser
from slimrl_envs.matching_game.rules.players import Player
from slimrl_envs.matching_game.rules.protocol import format_act, parse_heard, play_text


def play_out(game: MatchingGame, players: tuple[Player, Player]) -> float:
    """Plays a game to its end and returns the reward. After an error the same player is asked again."""
    num_heard = [0, 0]
    while not game.is_over:
        player = game.turn
        news = [act for who, act in game.history[num_heard[player] :] if who != player]
        num_heard[player] = len(game.history)
        text = players[player].reply("\n\n".join(format_act(act, game.deal) for act in news))
        try:
            play_text(game, player, text)
        except IllegalAct:
            continue  # counted by the game, which ends if that goes on
    return game.reward


class Agreeable:
    """Accepts every proposal and says nothing of interest: it lets others be measured."""

    def __init__(self, deal: Deal) -> None:
        self._deal = deal

    def reply(self, heard: str) -> str:
        agrees = isinstance(parse_heard(heard, self._deal), Propose)
        return format_act(Accept() if agrees else Say("What do you propose?"), self._deal)


class OwnViewPlayer:
    """Proposes what looks best to it alone, again and again; accepts whatever is proposed."""

    def __init__(self, deal: Deal, player: int) -> None:
        self._deal, self._player = deal, player

    def reply(self, heard: str) -> str:
        if isinstance(parse_heard(heard, self._deal), Propose):
            return format_act(Accept(), self._deal)
        return format_act(Propose(self._deal.own_best(self._player)), self._deal)


class TellingPlayer:
    """Tells everything that it sees, then proposes the optimum of what both see; accepts what is as good, and turns
    down one proposal at most: where few cells are known, two may well read the numbers differently.

    Nobody tells scales: it works them out from the numbers (`beliefs.likely_scale`), first of all from the cells that
    both know.
    """

    def __init__(self, deal: Deal, player: int) -> None:
        self._deal, self._seen = deal, deal.visible_table(player)
        self._parser = Parser(deal)
        self._own = own_values(self._seen)
        self._told: dict[Cell, int] = {}
        self._has_told = self._has_rejected = False

    def reply(self, heard: str) -> str:
        return format_act(self._act(parse_heard(heard, self._deal)), self._deal)

    def _act(self, heard: Say | Propose | None) -> Act:
        if isinstance(heard, Say):
            self._told |= listed_scores(self._parser, heard.text)
        beliefs = combine_beliefs(self._deal.size, self._own, self._told)
        best = optimum(beliefs)
        if isinstance(heard, Propose):
            if self._has_rejected or looks_best(beliefs, heard.assignment):
                return Accept()
            self._has_rejected = True
            return Reject()
        if self._has_told or not self._own:
            return Propose(best)
        self._has_told = True
        return Say(told_scores(self._deal, self._seen))


def told_scores(deal: Deal, seen: Grid) -> str:
    """Tells all scores that the player sees, reviewer by reviewer."""
    rows = []
    for reviewer, row in zip(deal.short_reviewers, seen, strict=True):
        scores = [f"{deal.short_papers[paper]} {score}" for paper, score in enumerate(row) if score is not None]
        rows += [f"{reviewer}: {', '.join(scores)}"] if scores else []
    return f"My scores: {'; '.join(rows)}."


def listed_scores(parser: Parser, text: str) -> dict[Cell, int]:
    """What `told_scores` has told: every number as the score of the reviewer and paper named last before it."""
    last: dict[str, int] = {}
    scores: dict[Cell, int] = {}
    for mention in parser.mentions(text):
        if mention.kind != "number":
            last[mention.kind] = mention.value
        elif "reviewer" in last and "paper" in last:
            scores[last["reviewer"], last["paper"]] = mention.value
    return scores
