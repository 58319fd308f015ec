"""The rules of the matching game as the players read them. Knows nothing of the course of a game (`game.py`)."""

from slimrl_envs.matching_game.rules.deal import Deal

MUST_ANSWER = "Answer the proposal with [accept] or [reject]."
LAST_MESSAGE = "This is your last message: make your proposal now."


def rules(deal: Deal, max_turns: int) -> str:
    """The rules for either player, short enough for a small model."""
    return (
        f"You and a partner assign {deal.size} reviewers to {deal.size} papers, one reviewer to each paper. The total "
        "of the scores should be as high as possible. Each of you knows only some of the scores, and yours are on "
        "another scale than your partner's, so talk before you decide. True scores are 0 to 99; a pair that neither of "
        "you knows counts 50.\n"
        "Begin each reply with one tag:\n"
        "[message] and then what you say to your partner\n"
        "[propose] Proposal: and then a line `Paper: Reviewer` for every paper\n"
        "[accept] or [reject], alone, to answer a proposal; after [reject] go on with another reply\n"
        f"The game ends when a proposal is accepted, and without a score after {max_turns} messages."
    )


def opening(deal: Deal, player: int, max_turns: int) -> str:
    """All that a player knows at the start: rules and table."""
    return f"{rules(deal, max_turns)}\n\n{deal.table_text(player)}"
