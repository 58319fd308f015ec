"""The settings say whose code runs in a worker process."""

import gc
import os
from pathlib import Path

import pytest

from slimrl.config.reading.load import load
from slimrl.config.rollout import EnvConfig
from slimrl.config.run import EvalRunConfig, RLConfig
from slimrl.errors import UserError
from slimrl.io.process_tree import processes
from slimrl.launch.tasksets import check_environments, drop_made, has_worker, load_tasksets
from slimrl.rollout.worker.taskset import RemoteTaskset


@pytest.mark.parametrize(
    ("env_id", "by_default"),
    [
        ("reverse-text", False),
        ("reverse_text", False),
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


def test_hosts_of_worker_processes_are_refused_where_there_are_none() -> None:
    config = load(RLConfig, ["--orchestrator.env.0.id", "reverse-text", "--deployment.num_workers", "2"], {}).config
    with pytest.raises(UserError, match=r"num_workers = 2 hosts worker processes .* no environment has one"):
        check_environments(config, make=False)


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ('id = "reverse-text"\nargs = { min_len = 4 }', "orchestrator.env.1.args.min_len (FILE:5): environment `rev"),
        ('id = "reverse-txet"', "orchestrator.env.1.id (FILE:4): there is no environment `reverse-txet`. Did you mean"),
        (
            'id = "reverse-text"\n[teacher]\ntype = "policy"\nenv_args.min_len = 4',
            "teacher.env_args.min_len (FILE:7): environment `",
        ),
    ],
)
@pytest.mark.parametrize("make", [False, True])
def test_a_mistake_about_an_environment_has_its_file_and_line(
    wrong: str, place: str, make: bool, tmp_path: Path
) -> None:
    path = tmp_path / "rl.toml"
    path.write_text(f'[[orchestrator.env]]\nid = "reverse-text"\n[[orchestrator.env]]\n{wrong}\n')
    resolved = load(RLConfig, ["@", str(path)], {})
    with pytest.raises(UserError) as caught:
        check_environments(resolved.config, make, resolved.provenance)
    assert str(caught.value).startswith(place.replace("FILE", str(path)))


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


def test_a_process_of_the_check_ends_where_other_processes_play(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "class Own:\n    def tasks(self, split): return []\n    def environment(self, task): return self\n"
    )
    config = load(EvalRunConfig, ["--env.0.id", f"{tmp_path / 'own.py'}:Own", "--model.name", "m"], {}).config
    before = num_workers()
    check_environments(config, make=False)
    assert num_workers() == before + 1
    drop_made()
    gc.collect()
    assert num_workers() == before


def num_workers() -> int:
    return sum(one.parent == os.getpid() and not one.ended for one in processes().values())
