"""The sandbox's server needs what the sandbox needs."""

from packages.sandbox.tests.conftest import isolated  # noqa: F401  # a fixture
