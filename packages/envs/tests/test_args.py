"""Values of the wrong type are refused, by environments whose args are fields of a dataclass or of a constructor."""

import pytest

from slimrl.environments.find import load_taskset
from slimrl.errors import UserError


@pytest.mark.parametrize(
    ("env_id", "args", "says"),
    [
        ("wordle", {"hints": "False"}, "`hints` cannot be 'False': .*boolean"),
        ("wordle", {"opened": 1}, "`opened` cannot be 1: .*boolean"),
        ("matching-game", {"max_turns": 2.5}, "`max_turns` cannot be 2.5: .*integer"),
        ("matching-game", {"max_turns": float("nan")}, "`max_turns` cannot be nan: .*integer"),
        ("matching-game", {"partner": "llm", "llm": 5}, "`llm` cannot be 5: .*dictionary"),
        ("alphabet-sort", {"sort_by": 5}, "`sort_by` cannot be 5: .*list"),
        ("alphabet-sort", {"sort_by": [["first"]]}, "`sort_by` cannot be .*: .*string"),
        ("wordle", {"num_answers": "abc"}, "`num_answers` cannot be 'abc': .*integer"),
        ("wordle", {"num_answers": True}, "`num_answers` cannot be True: .*integer"),
        ("wordle", {"win": "0.5"}, "`win` cannot be '0.5': .*number"),
        ("alphabet-sort", {"min_turns": 2.5}, "`min_turns` cannot be 2.5: .*integer"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(env_id, args, says):
    with pytest.raises(UserError, match=f"environment `{env_id}`: {says}"):
        load_taskset(env_id, args)


def test_a_whole_number_is_a_number():
    assert load_taskset("alphabet-sort", {"power": 8, "num_train": 3, "num_test": 3}).power == 8
