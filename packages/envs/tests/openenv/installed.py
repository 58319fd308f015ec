"""The Python in which the tests start OpenEnv's servers. This imports nothing of the adapter, whose extra may miss."""

import os

import pytest

PYTHON = os.environ.get("TEST_OPENENV_PYTHON", "")
needs_openenv = pytest.mark.skipif(
    not PYTHON,
    reason="TEST_OPENENV_PYTHON names no Python with openenv==0.10.0, whose fastmcp contradicts other packages here",
)
