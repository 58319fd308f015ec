"""The examples in docstrings give what they show."""

import doctest
import importlib

import pytest

from tests.project.distributions import HOMES, modules_of

pytestmark = pytest.mark.slow

WITH_EXAMPLES = [name for package in HOMES for name, source in modules_of(package).items() if ">>> " in source]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_hold(name: str) -> None:
    assert not doctest.testmod(importlib.import_module(name)).failed
