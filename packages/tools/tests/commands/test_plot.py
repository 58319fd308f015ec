"""`slimrl plot`: a run from its files."""

from pathlib import Path

import pytest
from matplotlib.image import imread

from slimrl.cli import run
from slimrl.monitor.sinks import JsonlSink, Monitor


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    with Monitor([JsonlSink(made / "metrics.jsonl")]) as monitor:
        for step in range(20):
            monitor.log(step, {"reward/mean": step / 20, "loss/entropy": 1 - step / 40})
    return made


@pytest.mark.slow
def test_a_run_that_is_being_written_is_drawn_into_its_directory(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (directory / "metrics.jsonl").open("a") as file:
        file.write('{"step": 21, "reward/me')
    assert run(["plot", str(directory)]) == 0
    assert capsys.readouterr().out == f"{directory / 'metrics.png'}\n"
    assert imread(directory / "metrics.png").shape[1] > 1000


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["svg", "pdf", "webp"])
def test_the_ending_of_the_file_is_its_format(directory: Path, ending: str) -> None:
    picture = directory.parent / "new" / f"a.{ending}"
    assert run(["plot", str(directory), "--output", str(picture)]) == 0
    assert picture.stat().st_size > 1000
    assert [path.name for path in picture.parent.iterdir()] == [picture.name]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("RUN", "--output", "a.foo"), "--output a.foo does not end in a format of pictures, such as `.png`"),
        (("nowhere",), "nowhere/metrics.jsonl cannot be read"),
    ],
)
def test_mistakes_are_answered_with_what_to_write(
    directory: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert run(["plot", *(word.replace("RUN", str(directory)) for word in words)]) == 2
    assert said in capsys.readouterr().err
