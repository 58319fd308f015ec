"""Skips these tests where the package is missing."""

from importlib.util import find_spec

import pytest

if find_spec("textarena") is None:  # it takes seconds to import
    pytest.skip("needs the package textarena", allow_module_level=True)
