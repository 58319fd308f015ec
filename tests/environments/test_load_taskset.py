"""An environment is found by its id, or the error says what to do."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slimrl import plugins
from slimrl.environments import find
from slimrl.environments.find import load_taskset, tasks_of
from slimrl.environments.reverse_text import ReverseText
from slimrl.errors import RolloutError, UserError
from slimrl.rollout.failures import convert_errors
from slimrl.types import Task

OWN = """
from dataclasses import dataclass
from typing import Any

from slimrl import Task, Taskset
from slimrl.errors import UserError

LEVELS = {1: "easy"}


@dataclass
class Sums:
    digits: int
    level: int = 1

    def __post_init__(self):
        if self.digits == 13:
            raise UserError("13 digits are too many")
        self.name = LEVELS[self.level]

    def tasks(self, split):
        return []

    def environment(self, task):
        return None


class Plain:
    def tasks(self, split):
        return []

class Typed:
    def __init__(
        self, on: bool = True, turns: int = 1, share: float = 0.5, names: list[str] = [], more: dict[str, Any] = {}
    ):
        self.given = (on, turns, share, names, more)

    def tasks(self, split): ...
    def environment(self, task): ...

class Early:
    def __init__(self):
        import no_such_package

class Late:
    def tasks(self, split):
        import no_such_package

    def environment(self, task):
        import no_such_package

class Inner:
    scripts = {"expert": None}
    def tasks(self, split): return [Task(split, {})]
    def environment(self, task): return self
class Wrapper:
    def __init__(self): self.inner = Inner()
    def __getattr__(self, name):
        if name == "inner": raise AttributeError(name)
        return getattr(self.inner, name)
class Instance(Taskset):
    def __init__(self): self.environment = lambda task: self
    def tasks(self, split): return [Task(split, {})]
"""


@pytest.fixture
def own_file(tmp_path):
    path = tmp_path / "sums.py"
    path.write_text(OWN)
    return path


@pytest.mark.parametrize("env_id", ["reverse-text", "reverse_text"])
def test_a_built_in_is_found_in_both_spellings(env_id):
    taskset = load_taskset(env_id, {"num_train": 7, "num_test": 3})
    assert isinstance(taskset, ReverseText)
    assert [len(taskset.tasks(split)) for split in ("train", "test")] == [7, 3]


def test_a_class_is_found_in_a_file_and_in_an_installed_package(own_file, monkeypatch):
    taskset = load_taskset(f"{own_file}:Sums", {"digits": 3})
    assert (taskset.digits, taskset.level) == (3, 1)
    monkeypatch.chdir(own_file.parent)
    assert load_taskset("sums.py:Sums", {"digits": 3}).digits == 3
    monkeypatch.syspath_prepend(own_file.parent)
    assert load_taskset("sums:Sums", {"digits": 4}).digits == 4
    monkeypatch.delitem(sys.modules, "sums")
    assert isinstance(load_taskset("slimrl.environments.reverse_text:ReverseText", {}), ReverseText)


# Ids and args that are refused, with a pattern of the message. Files of the test: `sums.py` and those of `FILES`.
REFUSED = [json.loads(line) for line in Path(__file__).with_name("refused.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture
def own_files(own_file, monkeypatch):
    for name, source in FILES.items():
        (own_file.parent / name).write_text(source)
    monkeypatch.chdir(own_file.parent)
    monkeypatch.syspath_prepend(own_file.parent)


@pytest.mark.parametrize("one", REFUSED, ids=lambda one: f"{one['id']} {one['args']}")
def test_an_environment_that_cannot_be_had_is_refused_with_the_reason(own_files, one):
    with pytest.raises(UserError, match=one["message"]):
        load_taskset(one["id"], one["args"])


LATER = """
from __future__ import annotations
class Later:
    def __init__(self, on: bool, where: Missing, what=1): self.given = (on, where, what)
    def tasks(self, split): return []
    def environment(self, task): return None
"""


def test_a_whole_number_is_a_number_and_annotations_that_are_text_are_read_too(own_files):
    assert load_taskset("sums.py:Typed", {"share": 8}).given == (True, 1, 8, [], {})
    assert load_taskset("later.py:Later", {"on": True, "where": "x", "what": "y"}).given == (True, "x", "y")
    with pytest.raises(UserError, match="`on` cannot be 'no'"):
        load_taskset("later.py:Later", {"on": "no", "where": "x"})


LACKS = r"No module named 'no_such_package'.*uv run --with PACKAGE slimrl"
FILES = {
    "later.py": LATER,
    "syntax.py": "def broken(:",
    "divides.py": "1 / 0",
    "needs.py": "import no_such_package",
    "misspelt.py": "from slimrl.types import Tsak",
    "exits.py": "exit()",
}


def test_a_missing_package_is_told_with_how_to_bring_it(own_files):
    for env_id in ("needs.py:X", "needs:X", "sums.py:Early"):
        with pytest.raises(UserError, match=LACKS):
            load_taskset(env_id, {})
    taskset = load_taskset("sums.py:Late", {})
    with pytest.raises(UserError, match=LACKS):
        tasks_of(taskset, "train")
    with pytest.raises(RolloutError, match=LACKS), convert_errors("environment"):
        taskset.environment(Task("one", {}))


ADAPTER = """
from slimrl.types import Task

class Adapter:
    def __init__(self, name: str, size: int = 3) -> None:
        self.made = Task(name, {"size": size})

    def tasks(self, split: str) -> list[object]:
        return [self.made]

    def environment(self, task: object) -> None: ...
"""


@pytest.fixture
def other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed distribution with environments."""
    about = tmp_path / "other_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[slimrl.environments]\nother-package: = adapter_of_a_test:Adapter\nother = adapter_of_a_test:Adapter\n"
    )
    (tmp_path / "adapter_of_a_test.py").write_text(ADAPTER)
    monkeypatch.syspath_prepend(tmp_path)
    plugins._entries.cache_clear()
    yield
    plugins._entries.cache_clear()
    sys.modules.pop("adapter_of_a_test", None)


def test_an_environment_of_another_package_is_found_by_its_name_and_by_its_scheme(other_package: None) -> None:
    assert load_taskset("other", {"name": "thing"}).tasks("train") == [Task("thing", {"size": 3})]
    for env_id in ("other-package:some:thing", "other_package:some:thing"):
        assert load_taskset(env_id, {"size": 4}).tasks("train") == [Task("some:thing", {"size": 4})]
    assert not any(find.is_builtin(env_id) for env_id in ("other", "other-package:some:thing"))
    assert find.is_builtin("reverse-text")
    with pytest.raises(UserError, match=r"Did you mean `size`\?"):
        load_taskset("other-package:x", {"sise": 4})
    with pytest.raises(UserError, match="`other-package:NAME`"):
        load_taskset("another", {})


@pytest.mark.parametrize(("name", "scripts"), [("Wrapper", ["expert"]), ("Instance", [])])
def test_methods_may_be_lent_by_another_object_or_set_on_the_instance(own_file, name, scripts):
    taskset = load_taskset(f"{own_file}:{name}", {})
    (task,) = taskset.tasks("train")
    assert taskset.environment(task) and list(taskset.scripts) == scripts and taskset.roles == ()
