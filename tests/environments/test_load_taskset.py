"""An environment is found by its id, or the error says what to do."""

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
from slimrl.types import Task, Taskset

OWN = """
from dataclasses import dataclass
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


def test_a_class_is_found_in_a_file(own_file):
    taskset = load_taskset(f"{own_file}:Sums", {"digits": 3})
    assert (taskset.digits, taskset.level) == (3, 1)


def test_a_file_is_found_from_the_working_directory(own_file, monkeypatch):
    monkeypatch.chdir(own_file.parent)
    assert load_taskset("sums.py:Sums", {"digits": 3}).digits == 3


def test_a_class_is_found_in_an_installed_package(own_file, monkeypatch):
    monkeypatch.syspath_prepend(own_file.parent)
    assert load_taskset("sums:Sums", {"digits": 4}).digits == 4
    monkeypatch.delitem(sys.modules, "sums")
    assert isinstance(load_taskset("slimrl.environments.reverse_text:ReverseText", {}), ReverseText)


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("reverse-txet", r"no environment `reverse-txet`.*Did you mean `reverse-text`.*path/to/file\.py:ClassName"),
        ("sums.py", r"no environment `sums\.py`.*path/to/file\.py:ClassName"),
        (":Sums", r"no environment `:Sums`"),
        ("/nowhere/sums.py:Sums", r"/nowhere/sums\.py does not exist \(looked in /nowhere\)"),
        ("no_such_package.sums:Sums", r"No module named 'no_such_package'.*`uv run --with PACKAGE slimrl"),
        ("slimrl.environments.reverse_text:ReverseTxt", r"has no `ReverseTxt`.*Did you mean `ReverseText"),
    ],
)
def test_an_environment_that_is_not_there(env_id, message):
    with pytest.raises(UserError, match=message):
        load_taskset(env_id, {})


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("Smus", {}, r"has no `Smus`.*Did you mean `Sums`"),
        ("LEVELS", {}, r"not a class, but the dict"),
        ("Plain", {}, r"Plain lacks `environment\(\)`.*`Taskset`"),
        ("Sums", {"digits": 3, "lvel": 2}, r"unexpected keyword argument 'lvel'.*Did you mean `level`"),
        ("Sums", {"level": 1}, r"missing a required argument: 'digits'.*Known: digits, level"),
        ("Sums", {"digits": 3, "level": 9}, r"failed with digits = 3, level = 9: KeyError: 9"),
        ("Sums", {"digits": 13}, r"^13 digits are too many$"),
    ],
)
def test_an_environment_that_does_not_fit(own_file, name, args, message):
    with pytest.raises(UserError, match=message):
        load_taskset(f"{own_file}:{name}", args)


@pytest.mark.parametrize(
    ("source", "message"),
    [("def broken(:", "SyntaxError"), ("1 / 0", "ZeroDivisionError"), ("import no_such_package", "no_such_package")],
)
def test_a_file_that_does_not_load(tmp_path, source, message):
    path = tmp_path / "broken.py"
    path.write_text(source)
    with pytest.raises(UserError, match=rf"broken\.py failed to load: .*{message}"):
        load_taskset(f"{path}:Anything", {})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def broken(:", "SyntaxError"),
        ("from slimrl.types import Tsak", "ImportError.*Tsak"),
        ("exit()", "SystemExit"),
    ],
)
def test_a_module_that_does_not_load(tmp_path, monkeypatch, source, message):
    (tmp_path / "broken_tasks.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=rf"`broken_tasks:Own`: broken_tasks failed to load: {message}"):
        load_taskset("broken_tasks:Own", {})


@pytest.mark.parametrize(
    ("env_id", "args", "says"),
    [
        ("reverse-text", {"style": 2024}, """`style` cannot be 2024: .* A text is written in quotes: '"2024"'"""),
        ("reverse-text", {"style": 3}, "`style` cannot be 3: .*string"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(env_id, args, says):
    with pytest.raises(UserError, match=f"environment `{env_id}`: {says}"):
        load_taskset(env_id, args)


TYPED = """
from typing import Any

class Typed:
    def __init__(
        self, on: bool = True, turns: int = 1, share: float = 0.5, names: list[str] = [], more: dict[str, Any] = {}
    ):
        self.given = (on, turns, share, names, more)

    def tasks(self, split): ...
    def environment(self, task): ...
"""


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"on": "False"}, "`on` cannot be 'False': .*boolean"),
        ({"on": 1}, "`on` cannot be 1: .*boolean"),
        ({"turns": 2.5}, "`turns` cannot be 2.5: .*integer"),
        ({"turns": float("nan")}, "`turns` cannot be nan: .*integer"),
        ({"turns": "abc"}, "`turns` cannot be 'abc': .*integer"),
        ({"turns": True}, "`turns` cannot be True: .*integer"),
        ({"share": "0.5"}, "`share` cannot be '0.5': .*number"),
        ({"names": 5}, "`names` cannot be 5: .*list"),
        ({"names": [["first"]]}, "`names` cannot be .*: .*string"),
        ({"more": 5}, "`more` cannot be 5: .*dictionary"),
    ],
)
def test_a_value_of_another_type_is_refused_and_a_whole_number_is_a_number(tmp_path, args, says):
    path = tmp_path / "typed.py"
    path.write_text(TYPED)
    with pytest.raises(UserError, match=says):
        load_taskset(f"{path}:Typed", args)
    assert load_taskset(f"{path}:Typed", {"share": 8}).given == (True, 1, 8, [], {})


def test_annotations_that_are_text_are_read_too_and_others_promise_nothing(tmp_path):
    path = tmp_path / "later.py"
    path.write_text(
        "from __future__ import annotations\n"
        "class Later:\n"
        "    def __init__(self, on: bool, where: Missing, what=1): self.given = (on, where, what)\n"
        "    def tasks(self, split): return []\n"
        "    def environment(self, task): return None\n"
    )
    assert load_taskset(f"{path}:Later", {"on": True, "where": "x", "what": "y"}).given == (True, "x", "y")
    with pytest.raises(UserError, match="`on` cannot be 'no'"):
        load_taskset(f"{path}:Later", {"on": "no", "where": "x"})


NEEDS = """
class Early:
    def __init__(self):
        import no_such_package

class Late:
    def tasks(self, split):
        import no_such_package

    def environment(self, task):
        import no_such_package
"""


@pytest.mark.parametrize("where", ["file", "constructor", "tasks", "module", "episode"])
def test_a_missing_package_is_told_with_how_to_bring_it(tmp_path, monkeypatch, where):
    (tmp_path / "needs_one.py").write_text("import no_such_package" if where in ("file", "module") else NEEDS)
    monkeypatch.syspath_prepend(tmp_path)
    name = "Early" if where == "constructor" else "Late"
    env_id = "needs_one:X" if where == "module" else f"{tmp_path / 'needs_one.py'}:{name}"

    def ask():
        taskset = load_taskset(env_id, {})
        if where == "tasks":
            tasks_of(taskset, "train")
        with convert_errors("environment"):
            taskset.environment(Task("one", {}))

    message = r"No module named 'no_such_package'.*uv run --with PACKAGE slimrl"
    with pytest.raises((UserError, RolloutError), match=message):
        ask()


@pytest.mark.parametrize("data", [{"seen": {1, 2}}, {3: "x"}, {"x": object()}])
def test_data_of_a_task_that_is_no_json_is_refused(data):
    class Odd(Taskset):
        def tasks(self, split):
            return [Task("one", data)]

        def environment(self, task):
            raise AssertionError

    with pytest.raises(UserError, match="the data of task `one` must be JSON"):
        tasks_of(Odd(), "train")


def test_a_class_of_a_notebook_is_found_there_alone():
    with pytest.raises(UserError, match=r"was written in a notebook or a script.*resume=True"):
        load_taskset("__main__:NoSuchClassHere", {})


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


LOANS = """
from slimrl import Task, Taskset
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


@pytest.mark.parametrize(("name", "scripts"), [("Wrapper", ["expert"]), ("Instance", [])])
def test_methods_may_be_lent_by_another_object_or_set_on_the_instance(tmp_path, name, scripts):
    (tmp_path / "loans.py").write_text(LOANS)
    taskset = load_taskset(f"{tmp_path / 'loans.py'}:{name}", {})
    (task,) = taskset.tasks("train")
    assert taskset.environment(task) and list(taskset.scripts) == scripts and taskset.roles == ()
