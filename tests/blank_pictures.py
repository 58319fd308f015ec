"""A fixture for packages whose tests run whole commands: drawing takes longer than the steps of a tiny model."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="package", autouse=True)
def pictures_are_blank() -> Iterator[None]:
    """The files of pictures are made, and nothing is drawn; `tests/monitor` and `tests/test_api.py` draw."""

    def save(_figure: object, path: Path, **_settings: object) -> None:
        path.write_bytes(b"")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", save)
        yield
