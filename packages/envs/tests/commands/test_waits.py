"""An environment waits for the program of its partner, or of its episodes (docs/waits.md), and that stands still."""

from pathlib import Path

import pytest

from tests.commands.standing_still import WAYS
from tests.commands.waiting import evaluated, standing_server, waiting

pytestmark = pytest.mark.nightly
ENVIRONMENTS = {
    "partner": '[{{id="matching-game", args={{partner="llm", llm={{base_url="{address}/v1", model="m"}}}}}}]',
    "environment": '[{{id="openenv:{address}"}}]',
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_server_that_stands_still(name: str, way: str, tiny_dir: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    with standing_server(way, asked) as address:
        words = evaluated(tiny_dir, tmp_path, ENVIRONMENTS[name].format(address=address))
        with waiting(words, tmp_path) as command:
            command.until(asked.exists)
            command.ends(way)
