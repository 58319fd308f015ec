"""Fixtures that skip tests which this machine cannot run. Marks would compile before the tests have a cache."""

import pytest

from tests.models.native.cases import skip_without_kernels, skip_without_tiles


@pytest.fixture
def kernels() -> None:
    skip_without_kernels()


@pytest.fixture
def tiles() -> None:
    skip_without_tiles()
