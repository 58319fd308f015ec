"""`wordle`: find a five-letter word in six guesses, each in <guess> tags, from the marks of the letters.

Models read tokens, not letters, so marks are shown letter by letter; `spelled` has guesses written so too. The rules
and the words are in `environments/wordle/rules.py` and `words.py`. What stands in the first tags of a reply, outside of
thoughts, is the guess, and the rest is not read. A reply without one, or with one that cannot be played, costs a guess.
"""

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from slimrl.environments.base import Script
from slimrl.environments.wordle.metrics import kind_of_failure, metrics_of
from slimrl.environments.wordle.rules import NUM_TRIES, Game, Try, known_from, marks_of
from slimrl.environments.wordle.solver import Solver, fixed_words, openings
from slimrl.environments.wordle.words import is_held_out, word_list
from slimrl.errors import UserError
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.types import Message, Rollout, Split, Task, Turn

OPEN, CLOSE = "<guess>", "</guess>"
RULES = """Find the secret word, an English word of five letters, in six guesses. Answer with a guess in tags: {example}
After it you read a mark for each letter:
G: the letter is right, and in its place
Y: the letter is in the word, in another place
X: the letter is not in the word, or not that often
A reply without a guess in tags, a guess that is no word of five letters, and one made before cost a guess too."""
BEST_LOSS = 0.8  # the closeness of a wrong guess is at most this
MIN_ANSWERS = 20
NUM_OPENINGS = 60


@dataclass
class Wordle:
    """The `num_answers` commonest words. Its fields are the `args` of its config section: `hints` sums up all marks
    after each guess; `spelled` has guesses written as ` c r a n e`.

    A fifth of the words, by their hash, is held out. With `opened` the first guess is made for the policy, one of the
    `NUM_OPENINGS` of the commonest letters, and a fifth of what it can be told is held out: a first guess and its
    marks, with all answers that have these. So answers are in both splits, after other first marks.

    After n tries of the policy's own, v of them guesses that could be played, the reward is

        win [won] + speed [won] (tries left) / 5 + closeness best + format v / n

    where best is that of the best guess: 1/5 for each letter in its place, 1/10 for each that is elsewhere. Each turn
    earns by how much it changes that. The four weights add up to 1, and every win is worth more than any loss.
    """

    num_answers: int = 2000
    hints: bool = False
    spelled: bool = False
    opened: bool = False
    win: float = 0.5
    speed: float = 0.1
    closeness: float = 0.3
    format: float = 0.1

    def __post_init__(self) -> None:
        weights = (self.win, self.speed, self.closeness, self.format)
        if not (min(weights) >= 0 and abs(sum(weights) - 1) <= 1e-6):  # nan is neither
            raise UserError(
                "wordle: the weights `win`, `speed`, `closeness` and `format` must be 0 or more and add up to 1, not "
                f"{' + '.join(f'{weight:g}' for weight in weights)} = {sum(weights):g}."
            )
        if self.win + self.closeness + self.format / NUM_TRIES <= BEST_LOSS * self.closeness + self.format:
            raise UserError(
                f"wordle: with `win` = {self.win:g} and `format` = {self.format:g} a loss with six good guesses can be "
                "worth as much as a win after five bad ones; raise `win`."
            )
        words = word_list()
        if not MIN_ANSWERS <= self.num_answers <= len(words.answers):
            raise UserError(
                f"wordle: `num_answers` must be {MIN_ANSWERS} to {len(words.answers)}, not {self.num_answers}."
            )
        self._answers, self._allowed = words.answers[: self.num_answers], words.allowed
        self._solver = Solver(self._answers)

    def tasks(self, split: Split) -> Sequence[Task]:
        """Every answer of the split, with every first guess of it, in an order that does not depend on how common they
        are. None for `validation`."""
        if split == "validation":
            return []
        pairs = [(opening, word) for opening in self._openings for word in self._answers if word != opening]
        mine = [pair for pair in pairs if is_held_out(_told_first(*pair)) == (split == "test")]
        mine.sort(key=lambda pair: hashlib.sha256(_name(*pair).encode()).digest())
        return [Task(f"{split}/{_name(*pair)}", dict(zip(("opening", "answer"), pair, strict=True))) for pair in mine]

    def environment(self, task: Task) -> "WordleEpisode":
        return WordleEpisode(self, Game(task.data["answer"], self._allowed, task.data.get("opening", "")))

    @property
    def scripts(self) -> dict[str, Script]:
        """A solver, one that guesses at random, and one that plays the same good words in every game."""
        return {"expert": self._solve, "random": self._guess_at_random, "fixed": self._play_fixed}

    def _solve(self, task: Task, seed: int) -> list[Message]:
        """A solver that knows all answers of both splits, but not which one it is; it wins almost always."""
        return self._played(task, self._solver.guess)

    def _guess_at_random(self, task: Task, seed: int) -> list[Message]:
        """Different words at random, all of them possible answers at first."""
        words = random.Random(f"{seed}/{task.id}").sample(self._answers, NUM_TRIES)
        return self._played(task, lambda tries: _first_new(words, tries))

    def failure_kind(self, rollout: Rollout) -> str | None:
        """A game that was won late is no failure, though it earned less than one that was won at once."""
        return kind_of_failure(rollout.metrics)

    def written(self, word: str) -> str:
        """A guess as a reply has it. Spelt out, with a space before each letter: its tokens are those of the marks."""
        return f"<guess> {' '.join(word)}</guess>" if self.spelled else f"<guess>{word}</guess>"

    def _play_fixed(self, task: Task, seed: int) -> list[Message]:
        """The same good words, whatever the marks say."""
        return self._played(task, lambda tries: _first_new(self._fixed, tries))

    def worth(self, game: Game) -> float:
        """The reward so far: the formula above."""
        marked = [one for one in game.own if one.marks]
        best = max((one.closeness for one in marked), default=0.0)
        won = self.win + self.speed * (NUM_TRIES - len(game.tries)) / (NUM_TRIES - 1) if game.is_won else 0.0
        return won + self.closeness * best + (self.format * len(marked) / len(game.own) if game.own else 0.0)

    @cached_property
    def _openings(self) -> list[str]:
        """First guesses that are made for the policy; without `opened` that of none."""
        return openings(self._answers, NUM_OPENINGS) if self.opened else [""]

    @cached_property
    def _fixed(self) -> list[str]:
        return fixed_words(self._answers, NUM_TRIES)

    def _played(self, task: Task, choose: Callable[[Sequence[Try]], str]) -> list[Message]:
        episode = self.environment(task)
        messages = episode.opening()
        while True:
            reply = self.written(choose(episode.game.tries))
            messages.append({"role": "assistant", "content": reply})
            turn = episode.react(reply)
            if turn.done:
                return messages
            messages += turn.messages


def guess_in(reply: str) -> str | None:
    """What stands in the first pair of tags outside of thoughts."""
    _, opened, rest = without_thoughts(reply).partition(OPEN)
    guess, closed, _ = rest.partition(CLOSE)
    return guess if opened and closed else None


def _first_new(words: Sequence[str], tries: Sequence[Try]) -> str:
    return next(word for word in words if word not in {one.word for one in tries})


def _name(opening: str, answer: str) -> str:
    return f"{opening}/{answer}" if opening else answer


def _told_first(opening: str, answer: str) -> str:
    """What decides about a game's split: what is the same for all games of it is on one side."""
    return f"{opening}/{marks_of(opening, answer)}" if opening else answer


class WordleEpisode:
    """One word, until it is found or six tries are spent."""

    def __init__(self, rules: Wordle, game: Game) -> None:
        self.game = game
        self._rules = rules
        self._untagged = 0

    async def start(self) -> list[Message]:
        return self.opening()

    async def step(self, reply: str) -> Turn:
        return self.react(reply)

    def opening(self) -> list[Message]:
        rules = RULES.format(example=self._rules.written("crane"))
        return [{"role": "system", "content": rules}, {"role": "user", "content": self._told()}]

    def react(self, reply: str) -> Turn:
        game, before = self.game, self._rules.worth(self.game)
        guess = guess_in(reply)
        self._untagged += guess is None
        if guess is not None:
            game.play(guess)
        else:
            game.forfeit("there is no guess in <guess> tags.")
        return Turn(
            done=game.is_over,
            messages=[{"role": "user", "content": self._told()}],
            reward=self._rules.worth(game) - before,
            metrics={**metrics_of(game), "tagged": 1 - self._untagged / len(game.own)},
        )

    def _told(self) -> str:
        """What came of the last try, if there was one, and what is to be done."""
        tries = self.game.tries
        if not tries:
            return self._next()
        mistake = [f"Error: {tries[-1].mistake}"] if tries[-1].mistake else []
        return "\n".join([*mistake, *self._marks(), *self._hints(), self._next()])

    def _marks(self) -> list[str]:
        """The last there are: after a mistake, which tells nothing, they are said again."""
        if not (marked := self.game.marked):
            return []
        return [f"word: {' '.join(marked[-1].word)}", f"mark: {' '.join(marked[-1].marks)}"]

    def _hints(self) -> list[str]:
        if not self._rules.hints:
            return []
        known = known_from(self.game.tries)
        lines = {"place": known.placed, "also": known.elsewhere, "none": known.absent}
        return [f"{name}: {' '.join(letters) or '-'}" for name, letters in lines.items()]

    def _next(self) -> str:
        """What is to be done; when the game is over, for people alone."""
        if self.game.is_over:
            return f"You {'won' if self.game.is_won else 'lost'}. The word is {self.game.answer}."
        return f"Guess {len(self.game.tries) + 1} of {NUM_TRIES}."
