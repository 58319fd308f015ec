"""BFCL's tasks without the package bfcl-eval."""

import sys

import pytest

from slimrl.environments.find import load_taskset
from slimrl.errors import UserError
from slimrl_envs.bfcl.package import load_entries


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch):
    load_entries.cache_clear()
    monkeypatch.setitem(sys.modules, "bfcl_eval", None)
    with pytest.raises(UserError, match="pip install --no-deps bfcl-eval"):
        load_taskset("bfcl:simple_python", {})
