"""Names of models that no file can have."""

import pytest

from tests.adversary.test_inputs import NAMES, refusal

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:9])
def test_a_model_of_a_name_that_no_file_can_have_is_refused_in_a_line(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal(["inference", "--model", name, "--dry-run"], capsys)
