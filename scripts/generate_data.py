"""Writes random matching games in which talking pays, one a line of JSON (`matching_game/rules/game_files.py`).

    uv run python scripts/generate_data.py --num_games 1000
    uv run python scripts/generate_data.py --num_games 200 --n 3 --split test --output data/small_test.jsonl

A seed deals one sequence of games, the same as the environment's; one in five of them is held out. `--split` writes
those of one split alone: games to train on must not be those that `slimrl eval` takes. The same arguments give the
same games on every machine. The file appears when it is whole.
"""

import argparse
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import check_installed  # noqa: F401  # ends the script where slimrl is missing

from slimrl.errors import UserError
from slimrl.io.files import explain_write_errors, replace_file
from slimrl.monitor.console import RunConsole
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.game_files import lines
from slimrl_envs.matching_game.rules.generator import MAX_SIZE, MIN_SIZE, deals_of_seed, split_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num_games", type=int, required=True, help="how many")
    file = "the file to write, .jsonl (default: %(default)s)"
    parser.add_argument("--output", type=Path, default=Path("data/games.jsonl"), help=file)
    sizes = f"papers, {MIN_SIZE} to {MAX_SIZE} (default: %(default)s)"
    parser.add_argument("--n", type=int, default=8, choices=range(MIN_SIZE, MAX_SIZE + 1), metavar="N", help=sizes)
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other games (default: %(default)s)")
    parser.add_argument("--split", choices=("all", "train", "test"), default="all", help="which (default: %(default)s)")
    turns = "messages of a game, as its `prompt` tells them (default: 20, but four for each paper, and six for two)"
    parser.add_argument("--max_turns", type=int, help=turns)
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")
    arguments = parser.parse_args()
    try:
        generate(arguments)
    except UserError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; nothing was written")


def generate(arguments: argparse.Namespace) -> None:
    if arguments.num_games < 1:
        raise UserError(f"--num_games is {arguments.num_games}; it must be 1 at least.")
    if arguments.max_turns is not None and arguments.max_turns < 2:
        raise UserError(f"--max_turns is {arguments.max_turns}; it must be 2 at least.")
    with explain_write_errors(arguments.output, "--output"):
        is_there = arguments.output.exists()
    if arguments.output.is_dir():
        raise UserError(f"{arguments.output} is a directory; --output is the file to write.")
    if arguments.output.suffix != ".jsonl":
        raise UserError(f"--output is {arguments.output}, but games are written as JSONL: call it .jsonl.")
    if is_there and not arguments.force:
        raise UserError(f"{arguments.output} exists. Choose another --output, or add --force to replace it.")
    console = RunConsole()
    dealt = deals_of_seed(arguments.n, arguments.seed)
    games = islice((deal for deal in dealt if arguments.split in ("all", split_of(deal))), arguments.num_games)
    rows = lines(counted(games, arguments.num_games, console), arguments.max_turns)
    replace_file(arguments.output, rows, "--output")
    console.note(f"{arguments.num_games:,} games in {arguments.output}")


def counted(games: Iterator[Deal], total: int, console: RunConsole) -> Iterator[Deal]:
    """The same games, with a bar that shows how many there are."""
    with console.progress("games", total) as bar:
        for game in games:
            yield game
            bar.advance()


if __name__ == "__main__":
    main()
