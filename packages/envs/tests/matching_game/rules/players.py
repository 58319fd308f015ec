"""Players that only tests need: who measure others, and who tell everything."""

from slimrl_envs.matching_game.rules.beliefs import combine_beliefs, looks_best, own_values
from slimrl_envs.matching_game.rules.deal import Cell, Deal, optimum
from slimrl_envs.matching_game.rules.game import Accept, Act, IllegalAct, MatchingGame, Propose, Reject, Say
from slimrl_envs.matching_game.rules.parser import Parser
from slimrl_envs.matching_game.rules.protocol import Player, format_act, play_text


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


class Agreeable(Player):
    """Accepts every proposal and says nothing of interest: it lets others be measured."""

    def _act(self, heard: Say | Propose | None) -> Act:
        return Accept() if isinstance(heard, Propose) else Say("What do you propose?")


class OwnViewPlayer(Player):
    """Proposes what looks best to it alone, again and again; accepts whatever is proposed."""

    def __init__(self, deal: Deal, player: int) -> None:
        super().__init__(deal)
        self._player = player

    def _act(self, heard: Say | Propose | None) -> Act:
        return Accept() if isinstance(heard, Propose) else Propose(self._deal.own_best(self._player))


class TellingPlayer(Player):
    """Tells everything that it sees, then proposes the optimum of what both see; accepts what is as good, and turns
    down one proposal at most: where few cells are known, two may well read the numbers differently.

    Nobody tells scales: it works them out from the numbers (`beliefs.likely_scale`), first of all from the cells that
    both know.
    """

    def __init__(self, deal: Deal, player: int) -> None:
        super().__init__(deal)
        self._seen = deal.seen(player)
        self._parser = Parser(deal)
        self._own = own_values(self._seen)
        self._told: dict[Cell, int] = {}
        self._has_told = self._has_rejected = False

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


def told_scores(deal: Deal, seen: dict[Cell, int]) -> str:
    """Tells all scores that the player sees, reviewer by reviewer."""
    rows = []
    for reviewer, name in enumerate(deal.short_reviewers):
        scores = [f"{paper} {seen[reviewer, p]}" for p, paper in enumerate(deal.short_papers) if (reviewer, p) in seen]
        rows += [f"{name}: {', '.join(scores)}"] if scores else []
    return f"My scores: {'; '.join(rows)}."


def listed_scores(parser: Parser, text: str) -> dict[Cell, int]:
    """What `told_scores` has told: every number as the score of the reviewer and paper named last before it."""
    last: dict[str, int] = {}
    scores: dict[Cell, int] = {}
    for kind, value in parser.mentions(text):
        if kind != "number":
            last[kind] = value
        elif "reviewer" in last and "paper" in last:
            scores[last["reviewer"], last["paper"]] = value
    return scores
