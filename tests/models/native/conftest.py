"""Fixtures that skip what this machine cannot run. Not marks: those would compile before the tests have a cache."""

import pytest

from tests.models.native.cases import skip_without_kernels, skip_without_tiles


@pytest.fixture
def kernels() -> None:
    skip_without_kernels()


@pytest.fixture
def tiles() -> None:
    skip_without_tiles()
