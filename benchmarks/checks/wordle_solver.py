"""How well does the scripted solver of Wordle play, and how long does a move take?

`uv run python -m benchmarks.checks.wordle_solver`: every held-out word of lists of three sizes; about half a minute.
"""

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import RESULTS, machine_facts, markdown_table, median, write_result
from slimrl_envs.wordle.rules import NUM_TRIES, Game
from slimrl_envs.wordle.solver import Solver
from slimrl_envs.wordle.words import is_held_out, word_list

SIZES = (1000, 2000, 4044)


def measure(num_answers: int) -> dict[str, Any]:
    """All held-out games of the commonest `num_answers`; times are this process's own, the first move left out."""
    words = word_list()
    answers = words.answers[:num_answers]
    solver, games, moves_ms = Solver(answers), [], []
    opener = solver.guess([])
    for answer in filter(is_held_out, answers):
        game = Game(answer, words.allowed)
        game.play(opener)
        while not game.is_over:
            began = time.process_time()
            guess = solver.guess(game.tries)
            moves_ms.append((time.process_time() - began) * 1000)
            game.play(guess)
        games.append(game)
    counts = Counter(len(game.tries) for game in games if game.is_won)
    return {
        "answers": num_answers,
        "games": len(games),
        "won": sum(counts.values()) / len(games),
        "opener": opener,
        "won_with_guess": {str(num): counts[num] for num in range(1, NUM_TRIES + 1)},
        "lost": [game.answer for game in games if not game.is_won],
        "move_ms": {"median": median(moves_ms, 2), "longest": round(max(moves_ms), 2)},
    }


def table(content: dict[str, Any]) -> str:
    rows = []
    for row in content["sizes"]:
        won = ", ".join(f"{num}: {count}" for num, count in row["won_with_guess"].items())
        move = f"{row['move_ms']['median']:.1f} ms ({row['move_ms']['longest']:.1f})"
        rows.append([str(row["answers"]), str(row["games"]), row["opener"], f"{100 * row['won']:.1f}%", won, move])
    head = ["answers", "held-out games", "first guess", "won", "with guess", "a move, median (longest)"]
    return markdown_table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "wordle_solver.json")
    arguments = parser.parse_args()
    facts = machine_facts()
    content = {"sizes": [measure(num) for num in SIZES]}
    print(table(content))
    write_result(arguments.output, facts, content, {})


if __name__ == "__main__":
    main()
