"""The build of the corpus and its index is seen while it lasts."""

from pathlib import Path

import pytest

from packages.search.tests.environments.wiki_search.conftest import Made


@pytest.mark.slow
def test_the_build_is_reported_once_on_standard_error(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(data_dir=str(tmp_path / "new"))
    shown = capsys.readouterr()
    jobs = [line.partition(" · ")[0] for line in shown.err.splitlines()]
    assert jobs == ["writing the corpus: 100/100", "embedding titles: 100/100", "indexing titles: 100/100"]
    assert not shown.out
    made(data_dir=str(tmp_path / "new"))  # everything is there
    assert not capsys.readouterr().err
