"""`wordle`: find a five-letter word in six guesses, each in <guess> tags, from feedback on its letters.

Models read tokens, not letters, so feedback is shown letter by letter. With `spelled`, guesses are written letter by
letter too. The rules and the words are in `wordle/rules.py` and `words.py`. The guess is the text in the first tags of
a reply, outside of thoughts. The rest of the reply is ignored. A reply without a valid guess also costs a guess.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import Field

from slimrl.environments.scripts import converse
from slimrl.io.text import hash_number
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.types import Message, Metrics, Rollout, Script, Split, Task, Taskset, Turn
from slimrl_envs.wordle.rules import GREEN, NUM_TRIES, Game, Try, feedback_of, find_hints, fits
from slimrl_envs.wordle.solver import Solver, choose_fixed_words, openings
from slimrl_envs.wordle.words import is_held_out, word_list

OPEN, CLOSE = "<guess>", "</guess>"
RULES = """Find the secret word, an English word of five letters, in six guesses. Answer with a guess in tags: {example}
After it you read a mark for each letter:
G: the letter is right, and in its place
Y: the letter is in the word, in another place
X: the letter is not in the word, or not that often
A reply without a guess in tags, a guess that is no word of five letters, and one made before cost a guess too."""
NUM_OPENINGS = 60
WIN, SPEED, CLOSENESS, FORMAT = 0.5, 0.1, 0.3, 0.1  # the weights of the reward; every win is worth more than any loss


@dataclass
class Wordle(Taskset):
    """A taskset of games. The answers are the `num_answers` most common words. The fields are the `args` of the config
    section. With `hints`, a summary of all feedback follows each guess. With `spelled`, guesses are written with a
    space before each letter.

    A fifth of the words, chosen by their hash, is held out. With `opened`, the environment makes the first guess for
    the policy: one of the `NUM_OPENINGS` best first guesses. In this case, not words are held out, but a fifth of the
    pairs of a first guess and its feedback. So an answer may be in both splits, but with different pairs.

    After n tries of the policy, of which v are valid guesses, the reward is

        0.5 [won] + 0.1 [won] (tries left) / 5 + 0.3 best + 0.1 v / n

    [won] is 1 for a win and 0 otherwise. best is the partial credit of the best guess: 1/5 for each letter in its
    place, 1/10 for each letter that is elsewhere. The reward of a turn is the change of this value.
    """

    num_answers: Annotated[int, Field(ge=20, le=4044)] = 2000
    hints: bool = False
    spelled: bool = False
    opened: bool = False

    def __post_init__(self) -> None:
        words = word_list()
        self._answers, self._allowed = words.answers[: self.num_answers], words.allowed
        self._solver = Solver(self._answers)

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the games of a split, one for each pair of an answer and a first guess. The order of the games does
        not depend on how common the words are. The split `validation` has no games."""
        if split == "validation":
            return []
        pairs = [(opening, word) for opening in self._openings for word in self._answers if word != opening]
        mine = [pair for pair in pairs if is_held_out(_split_key(*pair)) == (split == "test")]
        mine.sort(key=lambda pair: hash_number(_name(*pair), 32))
        return [Task(f"{split}/{_name(*pair)}", dict(zip(("opening", "answer"), pair, strict=True))) for pair in mine]

    def environment(self, task: Task) -> "WordleEpisode":
        return WordleEpisode(self, Game(task.data["answer"], self._allowed, task.data.get("opening", "")))

    @property
    def scripts(self) -> dict[str, Script]:
        """The scripts by name. `expert` knows the list of answers, but not the answer of the game, and wins almost
        always. `random` guesses different words of the list at random. `fixed` plays the same good words in every game
        and ignores feedback."""

        def guess_at_random(task: Task, seed: int) -> list[Message]:
            words = random.Random(f"{seed}/{task.id}").sample(self._answers, NUM_TRIES)
            return self._play(task, lambda tries: _first_new(words, tries))

        return {
            "expert": lambda task, seed: self._play(task, self._solver.guess),
            "random": guess_at_random,
            "fixed": lambda task, seed: self._play(task, lambda tries: _first_new(self._constant_words, tries)),
        }

    def failure_kind(self, rollout: Rollout) -> str | None:
        """Return a description of how the game was lost; None for a win. A late win is not a failure, although it
        earned less."""
        metrics = rollout.metrics
        if metrics["won"]:
            return None
        if not metrics["valid"]:
            return "no guess that could be played" if metrics["tagged"] else "no guess in tags"
        if metrics["unfinished"]:
            return ""
        by_marks = "against" if metrics.get("consistent", 1.0) < 0.5 else "by"
        return f"lost, most guesses {'could not be played' if metrics['valid'] < 0.5 else f'{by_marks} the marks'}"

    def format_guess(self, word: str) -> str:
        """Return the reply that guesses `word`. With `spelled`, a space precedes each letter, so that the tokens are
        the same as in the feedback."""
        return f"<guess> {' '.join(word)}</guess>" if self.spelled else f"<guess>{word}</guess>"

    @cached_property
    def _openings(self) -> list[str]:
        """The first guesses that the environment makes for the policy. Without `opened` the list has one empty text,
        because there is no first guess."""
        return openings(self._answers, NUM_OPENINGS) if self.opened else [""]

    @cached_property
    def _constant_words(self) -> list[str]:
        return choose_fixed_words(self._answers, NUM_TRIES)

    def _play(self, task: Task, choose: Callable[[Sequence[Try]], str]) -> list[Message]:
        """Return the conversation of a script. `choose` takes the tries so far and returns the next guess."""
        episode = self.environment(task)
        return converse(episode, lambda: self.format_guess(choose(episode.game.tries)))


def worth_of(game: Game) -> float:
    """Return the reward so far, by the formula in the docstring of `Wordle`."""
    answered = [one for one in game.own_tries if one.feedback]
    best = max((one.partial_credit for one in answered), default=0.0)
    won = WIN + SPEED * (NUM_TRIES - len(game.tries)) / (NUM_TRIES - 1) if game.is_won else 0.0
    form = FORMAT * len(answered) / len(game.own_tries) if game.own_tries else 0.0
    return won + CLOSENESS * best + form


def find_guess(reply: str) -> str | None:
    """Return the text in the first pair of tags outside of thoughts; None without such a pair."""
    _, opened, rest = without_thoughts(reply).partition(OPEN)
    guess, closed, _ = rest.partition(CLOSE)
    return guess if opened and closed else None


def _first_new(words: Sequence[str], tries: Sequence[Try]) -> str:
    return next(word for word in words if word not in {one.word for one in tries})


def _name(opening: str, answer: str) -> str:
    return f"{opening}/{answer}" if opening else answer


def _split_key(opening: str, answer: str) -> str:
    """Return the key whose hash decides the split of a game: the word, or with an `opening` the pair of the opening and
    its feedback."""
    return f"{opening}/{feedback_of(opening, answer)}" if opening else answer


class WordleEpisode:
    """An episode on one word. It ends when the word is found or six tries are used up."""

    def __init__(self, rules: Wordle, game: Game) -> None:
        self.game = game
        self._rules = rules
        self._untagged = 0

    async def start(self) -> list[Message]:
        """Return the rules, and the first request for a guess."""
        rules = RULES.format(example=self._rules.format_guess("crane"))
        return [{"role": "system", "content": rules}, {"role": "user", "content": self._observation()}]

    async def step(self, reply: str) -> Turn:
        """Play the guess in a reply. The reward of the turn is the change of `worth_of`."""
        game, before = self.game, worth_of(self.game)
        guess = find_guess(reply)
        self._untagged += guess is None
        game.play(guess or "", "there is no guess in <guess> tags." if guess is None else "")
        # The differences of the worth add up to the reward of the episode.
        reward = worth_of(game) - before
        return Turn(game.is_over, [{"role": "user", "content": self._observation()}], reward, self._metrics())

    def _metrics(self) -> Metrics:
        """Return the metrics of the player's own tries so far.

        `consistent` is the share of guesses that could have been the answer, given all feedback before them. It is
        missing if no guess followed feedback.
        """
        game = self.game
        answered, own = game.tries_with_feedback, [one for one in game.own_tries if one.feedback]
        consistent = [fits(one.word, answered[:place]) for place, one in enumerate(answered) if place]
        return {
            "won": float(game.is_won),
            "guesses": float(len(game.tries)),
            "valid": len(own) / len(game.own_tries),
            "best_greens": float(max((one.feedback.count(GREEN) for one in own), default=0)),
            "repeated": float(sum(one.is_repeated for one in game.own_tries)),
            **({"consistent": sum(consistent) / len(consistent)} if consistent else {}),
            "tagged": 1 - self._untagged / len(game.own_tries),
        }

    def _observation(self) -> str:
        """Return the message to the policy: the mistake of the last try, the last feedback, the hints, and the next
        request or the result, which the policy does not read. Parts that do not exist are left out."""
        game, tries, answered = self.game, self.game.tries, self.game.tries_with_feedback
        lines = [f"Error: {tries[-1].mistake}"] if tries and tries[-1].mistake else []
        if answered:  # after a mistake the last feedback is shown again
            lines += [f"word: {' '.join(answered[-1].word)}", f"mark: {' '.join(answered[-1].feedback)}"]
        if self._rules.hints and tries:
            hints = zip(("place", "also", "none"), find_hints(tries), strict=True)
            lines += [f"{name}: {' '.join(letters) or '-'}" for name, letters in hints]
        result = f"You {'won' if game.is_won else 'lost'}. The word is {game.answer}."
        return "\n".join([*lines, result if game.is_over else f"Guess {len(tries) + 1} of {NUM_TRIES}."])
