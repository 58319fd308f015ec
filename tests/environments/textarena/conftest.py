"""Skips these tests where the package is missing."""

import pytest

pytest.importorskip("textarena", reason="needs the package textarena")
