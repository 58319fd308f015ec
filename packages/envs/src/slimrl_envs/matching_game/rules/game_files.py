"""Files of matching games, one a line: JSON with `prompt`, `game_state`, `ground_truth`, `optimal_score`, `game_id` and
`name`.

`game_state` (`state.py`) is the deal; `ground_truth` is the same again, for trainers that look there; `prompt` is what
player 1 reads first. `game_id` is the number of the line, from 0, and `name` is unique beyond the file. Reading needs
`game_state` alone. Knows nothing of how games are dealt or played.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from slimrl.errors import UserError
from slimrl.io.rows import file_rows, preview
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.game import usual_turns
from slimrl_envs.matching_game.rules.instructions import opening
from slimrl_envs.matching_game.rules.state import deal_of, game_state


def row(deal: Deal, number: int, max_turns: int | None = None) -> dict[str, Any]:
    """A deal as the row of a data set with this number. The `prompt` tells how many messages there may be (default:
    `usual_turns`)."""
    state = game_state(deal)
    return {
        "prompt": opening(deal, 0, usual_turns(deal.size) if max_turns is None else max_turns),
        "game_state": state,
        "ground_truth": state,
        "optimal_score": deal.best,
        "game_id": number,
        "name": deal.game_id,
    }


def lines(deals: Iterable[Deal], max_turns: int | None = None) -> Iterator[bytes]:
    """The lines of a file of games."""
    rows = (row(deal, number, max_turns) for number, deal in enumerate(deals))
    return (json.dumps(content, ensure_ascii=False).encode() + b"\n" for content in rows)


def read_games(path: Path) -> list[Deal]:
    """The games of a file (JSONL or parquet). Raises UserError that names file and line where there is none."""
    games = [_deal(content, place) for content, place in file_rows(path, "the path of the games")]
    if not games:
        raise UserError(
            f"{path} holds no games. Write some with `scripts/generate_data.py --output NAME.jsonl`, and name that "
            "file."
        )
    return games


def _deal(content: Any, place: str) -> Deal:
    if not isinstance(content, dict) or not isinstance(content.get("game_state"), dict):
        raise UserError(
            f"{place} is no matching game: a row is a JSON object with a `game_state`, but here stands "
            f"{preview(content)}. `scripts/generate_data.py` writes such files."
        )
    try:
        return deal_of(content["game_state"], str(content.get("name") or content.get("game_id", place)))
    except ValueError as error:
        raise UserError(f"{place} is no matching game: {error}.") from error
