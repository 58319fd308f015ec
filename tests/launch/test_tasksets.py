"""The settings say whose code runs in a worker process."""

from pathlib import Path

import pytest

from slimrl.config.reading.load import load
from slimrl.config.rollout import EnvConfig
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.launch.tasksets import check_environments, has_worker, load_tasksets
from slimrl.rollout.worker.taskset import RemoteTaskset


@pytest.mark.parametrize(
    ("env_id", "by_default"),
    [
        ("reverse-text", False),
        ("alphabet_sort", False),
        ("slimrl.environments.reverse_text:ReverseText", False),
        ("own.py:Own", True),
        ("some.package:Own", True),
        ("slimrl.py:Own", True),
        ("__main__:Own", False),
    ],
)
def test_code_that_does_not_come_with_slimrl_runs_in_a_worker(env_id: str, by_default: bool) -> None:
    assert has_worker(EnvConfig(id=env_id)) is by_default
    assert not has_worker(EnvConfig(id=env_id, worker="none"))
    if not env_id.startswith("__main__"):
        assert has_worker(EnvConfig(id=env_id, worker="process"))


def test_a_class_of_a_notebook_cannot_run_in_a_worker() -> None:
    with pytest.raises(UserError, match=r'leave out worker = "process", or move the class to a file'):
        has_worker(EnvConfig(id="__main__:Own", worker="process"))


def test_limits_and_hosts_of_worker_processes_are_refused_where_there_are_none() -> None:
    with pytest.raises(UserError, match=r'memory_gb = 2 of environment `reverse-text`.* or set worker = "process"'):
        has_worker(EnvConfig(id="reverse-text", memory_gb=2))
    with pytest.raises(UserError, match=r"it has none: remove it\.$"):
        has_worker(EnvConfig(id="__main__:Own", memory_gb=2))
    assert has_worker(EnvConfig(id="reverse-text", memory_gb=2, worker="process"))
    config = load(RLConfig, ["--orchestrator.env.0.id", "reverse-text", "--deployment.num_workers", "2"], {}).config
    with pytest.raises(UserError, match=r"num_workers = 2 hosts worker processes .* no environment has one"):
        check_environments(config, make=False)


def test_the_setting_decides(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import os\nfrom slimrl.types import Task\nclass Own:\n"
        "    def tasks(self, split): return [Task(str(os.getpid()), {})]\n"
        "    def environment(self, task): return self\n"
    )
    envs = [EnvConfig(id=f"{tmp_path / 'own.py'}:Own", worker=worker) for worker in ("none", "process")]
    here, there = load_tasksets(envs, 9.0)
    assert not isinstance(here, RemoteTaskset) and isinstance(there, RemoteTaskset)
    assert here.tasks("train") != there.tasks("train")
