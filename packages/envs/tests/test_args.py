"""Args that cannot work are refused at once, with the reason. reasoning-gym and verifiers have tables of their own.

Their tests run in environments of their own.
"""

import json
from importlib.util import find_spec
from typing import Any

import pytest

from slimrl.environments.find import load_taskset
from slimrl.errors import UserError

GAME = {"n": 3, "num_train": 40, "num_test": 20, "max_turns": 12}
TIC = "textarena:TicTacToe-v0"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("alphabet-sort", {"min_turns": 0}, "`min_turns` cannot be 0: Input should be greater than 0"),
    ("alphabet-sort", {"min_turns": 4}, "`min_turns` = 4 is more than max_turns = 3"),
    ("alphabet-sort", {"max_names": 1}, "`max_names` cannot be 1: Input should be greater than or equal to 2"),
    ("alphabet-sort", {"max_turns": 20}, "`max_turns` x `max_names` = 100, and there are only"),
    ("alphabet-sort", {"max_name": 4}, "max_names"),
    ("matching-game", {**GAME, "partner": "scripte"}, "no `partner` 'scripte'. Did you mean `scripted`"),
    ("matching-game", {**GAME, "n": 11}, "`n` cannot be 11: Input should be less than or equal to 10"),
    ("matching-game", {**GAME, "llm": {"model": "x"}}, '`llm` is for `partner = "llm"`'),
    ("matching-game", {**GAME, "partner": "llm", "llm": {"modle": "x"}}, "no setting `modle`. Did you mean `model`"),
    ("wordle", {"num_answers": 5000}, "`num_answers` cannot be 5000: Input should be less than or equal to 4044"),
    ("wordle", {"hint": True}, "Did you mean `hints`"),
    ("openenv:echo", {}, "is no URL with a host"),
    ("openenv:http://", {}, "docker run --publish 127.0.0.1:8000:8000 IMAGE"),
    ("openenv:http://me:secret@host", {}, "a user or a password"),
    ("openenv:http://host/?token=1", {}, "a query"),
    ("textarena:TicTakToe-v0", {}, "Did you mean `TicTacToe-v0`"),
    (TIC, {"player": 1}, "player"),
    (TIC, {"config": {"size": 4}}, "cannot be made with config"),
    ("textarena:TwentyQuestions-v0", {}, "remote service"),
    ("textarena:Bandit-v0", {}, "cannot be trained on"),
    ("textarena:UsedCar-v0-balanced", {}, "cannot be made with config"),
]


def case(env_id: str, args: dict[str, Any], said: str) -> Any:
    is_slow = env_id.startswith("textarena")  # its import takes seconds
    marks = [pytest.mark.slow, pytest.mark.skipif(find_spec("textarena") is None, reason="needs the package textarena")]
    return pytest.param(env_id, args, said, marks=marks if is_slow else (), id=f"{env_id} {json.dumps(args)}")


@pytest.mark.parametrize(("env_id", "args", "said"), [case(*one) for one in REFUSED])
def test_args_that_cannot_work_are_refused(env_id: str, args: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as error:
        load_taskset(env_id, args)
    assert said in str(error.value)
