"""The sandbox's server needs what the sandbox needs."""

from tests.sandbox.conftest import isolated  # noqa: F401  # a fixture
