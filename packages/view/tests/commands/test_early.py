"""What `slimrl view` tells without PyTorch, and so in a second."""

import pytest

from tests.commands.early import run

pytestmark = pytest.mark.slow


def test_help_needs_no_pytorch() -> None:
    said, last = run("view", "--help")
    assert last == "0 []" and said.startswith("usage: slimrl view")
