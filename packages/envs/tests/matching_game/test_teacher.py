"""A teacher that reads more than the policy, in a game that has two roles."""

import pytest

from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.launch.parts import make_rl_parts
from slimrl.launch.teacher import make_distillation
from slimrl.monitor.console import RunConsole
from tests.launch.test_teacher import flags


def test_more_context_for_several_roles_at_once_is_refused(tiny_dir, tmp_path):
    more = ["--orchestrator.env.0.args", '{n=3, partner="self", num_train=4, num_test=2}']
    teacher = ["--teacher.type", "policy", "--teacher.env_args", "{max_turns=10}"]
    config = load(RLConfig, flags(tiny_dir, "matching-game", tmp_path, *more, *teacher), {}).config
    parts = make_rl_parts(config, tmp_path, RunConsole())
    with pytest.raises(UserError, match="one opening for each task, and MatchingTaskset has one for each role"):
        make_distillation(parts)
