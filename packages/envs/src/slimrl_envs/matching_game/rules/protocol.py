"""The protocol: the rules as players read them, and the conversion of acts to text and of text to acts. `game.py`
decides which acts may be played.

A text is one act. The text starts with the tag of the act, and contains no other tag.

    [message] What does Ava have for BLEU?

    [propose] Proposal:
    BLEU: Ava Li
    Electra: Daniel Nguyen

    [accept]

    [reject]

A second tag anywhere in the text is an error, even in quotes. Text after `[accept]` or `[reject]` is an error, too. So
no act can be hidden in another act, no message can imitate the partner's text, and no text is ignored silently. All
lines of a message count.

Unambiguous variants are accepted: lines of a proposal in any order, `<br/>` for a line break, bullets and line numbers,
any case, extra spaces, and short or full names. A short name is a reviewer's first or last name, if it is unique, or a
title up to its colon. Any other text raises `IllegalAct` with the correct form.
"""

import html
import re
from collections import defaultdict

from slimrl.errors import nearest
from slimrl_envs.matching_game.rules.deal import Assignment, Deal
from slimrl_envs.matching_game.rules.game import Accept, Act, IllegalAct, MatchingGame, Propose, Reject, Say

REVIEWER, PAPER = "reviewer", "paper"
_TAG = re.compile(r"\[[ \t]*(message|propose|accept|reject)[ \t]*\]", re.IGNORECASE)
_LINE_BREAK = re.compile(r"\r\n|\r|\n|<br ?/?>", re.IGNORECASE)
_BULLET = re.compile(r"^(?:[-*•–\s]+|\d{1,3}[.)]\s+)+")
_QUOTED_CHARS = 40
_LINE_CHARS = 500
MUST_ANSWER = "Answer the proposal with [accept] or [reject]."
LAST_MESSAGE = "This is your last message: make your proposal now."


def rules(deal: Deal, max_turns: int) -> str:
    """Return the rules for either player, short enough for a small model."""
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


def play_text(game: MatchingGame, player: int, text: str) -> Act:
    """Play the act in a text and return it. A text without a legal act counts as an error and raises IllegalAct."""
    try:
        act = parse_act(text, game.deal)
    except IllegalAct:
        game.num_errors[player] += 1
        raise
    game.play(player, act)
    return act


def split_tag(text: str) -> tuple[str, str]:
    """Return the kind of act from the tag at the start of a text, such as `propose`, and the text after the tag.
    Without a tag the kind is empty. Metrics and analyses use this function, too, so that their counts agree.

    >>> split_tag(" [ Propose ] Proposal:"), split_tag("I [propose]")
    (('propose', 'Proposal:'), ('', 'I [propose]'))
    """
    text = text.strip()
    tag = _TAG.match(text)
    return (tag[1].lower(), text[tag.end() :].strip()) if tag else ("", text)


def parse_act(text: str, deal: Deal) -> Act:
    """Return the act in a text. Raises IllegalAct, which describes the fault, if the text is not an act."""
    kind, body = split_tag(text)
    if not kind:
        raise IllegalAct("Begin with a tag: [message], [propose], [accept] or [reject].")
    second = _TAG.search(body)
    if second:
        raise IllegalAct(f"One tag in a turn: you wrote [{kind}] and then {second[0]}. Write one of them only.")
    if kind == "propose":
        return Propose(_assignment(body, deal))
    if kind == "message":
        if not body:
            raise IllegalAct("Your message is empty. Write your text after [message].")
        return Say(body)
    if body:
        raise IllegalAct(f"Write [{kind}] alone: the text after it would not be heard.")
    return Accept() if kind == "accept" else Reject()


def format_act(act: Act, deal: Deal) -> str:
    """Return the text of an act as the other player reads it. `parse_act` is its inverse."""
    match act:
        case Say(text):
            return f"[message] {text}"
        case Propose(assignment):
            return f"[propose] Proposal:\n{proposal_lines(assignment, deal)}"
        case Accept():
            return "[accept]"
        case Reject():
            return "[reject]"


def proposal_lines(assignment: Assignment, deal: Deal) -> str:
    """Return the lines of a proposal: `Paper: Reviewer` in short names, in the order of the table."""
    pairs = zip(deal.short_papers, assignment, strict=True)
    return "\n".join(f"{paper}: {deal.short_reviewers[reviewer]}" for paper, reviewer in pairs)


class Names:
    """An index of the names of a deal's papers or reviewers, depending on `kind`. `forms` maps a name to the indices
    that the name may mean. The names of a paper are its title and its short name. The names of a reviewer are the full,
    the first and the last name. Case and spaces do not matter."""

    def __init__(self, deal: Deal, kind: str) -> None:
        self.kind, self.forms = kind, defaultdict[str, set[int]](set)
        self.short = deal.short_papers if kind == PAPER else deal.short_reviewers
        for index, name in enumerate(deal.papers if kind == PAPER else deal.reviewers):
            words = name.split()
            for form in (name, self.short[index]) if kind == PAPER else (name, words[0], words[-1]):
                self.forms[_key(form)].add(index)

    def find(self, name: str) -> set[int]:
        """Return the indices that a name may mean: one index for an unambiguous name, none for an unknown name."""
        return self.forms.get(_key(name), set())

    def find_one(self, name: str) -> int:
        """Return the index that a name means. Raise IllegalAct if the name is unknown or ambiguous."""
        found, quoted = self.find(name), _quote(name)
        if len(found) == 1:
            return next(iter(found))
        if found:
            who = " or ".join(self.short[index] for index in sorted(found))
            raise IllegalAct(f"`{quoted}` may be {who}: write the full name.")
        raise IllegalAct(f"There is no {self.kind} `{quoted}`.{nearest(quoted, self.short)}")


def _key(name: str) -> str:
    return " ".join(name.strip(" \t\"'`*_.,;").casefold().split())


def _assignment(body: str, deal: Deal) -> Assignment:
    """Return the assignment in the body of a proposal. Raise IllegalAct for a bad line, a repeated name or a missing
    paper."""
    papers, reviewers = Names(deal, PAPER), Names(deal, REVIEWER)
    chosen: dict[int, int] = {}
    for line in _lines(body):
        paper, reviewer = _pair(line, papers, reviewers)
        if paper in chosen:
            raise IllegalAct(f"{papers.short[paper]} stands in two lines of your proposal; give it one reviewer.")
        if reviewer in chosen.values():
            raise IllegalAct(f"{reviewers.short[reviewer]} stands in two lines of your proposal; each reads one paper.")
        chosen[paper] = reviewer
    if len(chosen) < deal.size:
        lacking = ", ".join(name for index, name in enumerate(papers.short) if index not in chosen)
        free = ", ".join(name for index, name in enumerate(reviewers.short) if index not in chosen.values())
        raise IllegalAct(
            f"Your proposal lacks {lacking} (reviewers not used yet: {free}). Write a line `Paper: Reviewer` for "
            f"each of the {deal.size} papers."
        )
    return tuple(chosen[paper] for paper in range(deal.size))


def _lines(body: str) -> list[str]:
    """Return the lines of a proposal that should be pairs, without their bullets. Empty lines and the heading are left
    out."""
    lines = [_BULLET.sub("", html.unescape(line)).strip() for line in _LINE_BREAK.split(body)]
    if lines and re.match(r"proposal\s*:", lines[0], re.IGNORECASE):
        lines[0] = lines[0].partition(":")[2].strip()
    return [line for line in lines if line]


def _pair(line: str, papers: Names, reviewers: Names) -> tuple[int, int]:
    """Return the paper and the reviewer of a line. Raise IllegalAct if the line has no valid pair."""
    places = [place for place, character in enumerate(line) if character == ":"]
    if not places or len(line) > _LINE_CHARS:
        raise IllegalAct(f"`{_quote(line)}` is no line of a proposal. Write `Paper: Reviewer` in each line, no more.")
    # Titles contain colons, so each colon is tried as the separator of paper and reviewer, the last one first.
    splits = [(line[:place], line[place + 1 :]) for place in reversed(places)]
    with_paper = [split for split in splits if papers.find(split[0])]
    paper, reviewer = (with_paper or splits)[0]
    if not with_paper and reviewers.find(paper):
        raise IllegalAct(f"In `{_quote(line)}` the paper must come first: `Paper: Reviewer`.")
    return papers.find_one(paper), reviewers.find_one(reviewer)


def _quote(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _QUOTED_CHARS else text[: _QUOTED_CHARS - 3] + "..."
