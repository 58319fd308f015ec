"""Training and the held-out split of an environment share no task."""

import pytest

from tests.environments.test_splits import shared_of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env_id", "args"),
    [
        ("alphabet-sort", {}),
        ("wordle", {}),
        ("matching-game", {"n": 3, "num_train": 200, "num_test": 50}),
        ("matching-game", {"n": 2, "num_train": 200, "num_test": 50}),
    ],
)
def test_no_environment_shares_any(env_id: str, args: dict[str, object]) -> None:
    assert shared_of(env_id, args) == []
