"""The house has a core and plug-ins, and floors: which module may import which. See docs/structure.md.

`violations` reads sources, not a running program, so it is tested below on small sources that break each rule.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import chain

import pytest

from tests.project.distributions import (
    CORE,
    HOMES,
    PLUGINS,
    ROOT,
    files_of,
    modules_of,
    package_of,
    project_of,
    requirements_of,
)

# A module imports from lower floors, or from its own entry: the one with the longest matching name.
FLOORS = {
    "slimrl": 0,
    "slimrl.types": 0,
    "slimrl.errors": 0,
    "slimrl.plugins": 1,
    "slimrl.io": 1,
    "slimrl.stats": 1,
    "slimrl.inference.client": 1,
    "slimrl.config": 2,
    "slimrl.models.chat": 2,
    "slimrl.models": 3,
    "slimrl.monitor": 3,
    "slimrl.transport": 3,
    "slimrl.tools": 3,
    "slimrl.judges": 3,
    "slimrl.environments": 3,
    "slimrl.environments.dataset": 4,
    "slimrl.inference": 4,
    "slimrl.rollout": 4,
    "slimrl.trainer": 4,
    "slimrl.trainer.rl": 5,
    "slimrl.trainer.sft": 5,
    "slimrl.orchestrator": 5,
    "slimrl.eval": 5,
    "slimrl.launch": 6,
    "slimrl.commands": 7,
    "slimrl.cli": 7,
    "slimrl.api": 8,
    "slimrl.integrations": 8,
    "slimrl.__main__": 8,
}
# Floors inside the plug-ins. A plug-in that is not listed has one floor, on which imports go round in no circle.
PLUGIN_FLOORS = {
    "slimrl_cluster.transport": 0,
    "slimrl_cluster.inference": 0,
    "slimrl_cluster.services": 1,
    "slimrl_cluster.vllm_plugin": 0,
    "slimrl_cluster.launch": 2,
    "slimrl_cluster.commands": 3,
    "slimrl_cluster": 4,
    # No environment knows another one.
    "slimrl_envs.alphabet_sort": 1,
    "slimrl_envs.bfcl": 1,
    "slimrl_envs.matching_game": 1,
    "slimrl_envs.openenv": 1,
    "slimrl_envs.reasoning_gym": 1,
    "slimrl_envs.sglang": 1,
    "slimrl_envs.textarena": 1,
    "slimrl_envs.verifiers": 1,
    "slimrl_envs.wordle": 1,
    "slimrl_envs.slime": 2,
    "slimrl_envs": 3,
    "slimrl_search.retrieval": 0,
    "slimrl_search.judge": 0,
    "slimrl_search.services": 1,
    "slimrl_search.wiki_search": 1,
    "slimrl_search.judge.command": 2,
    "slimrl_search.scripts": 2,
    "slimrl_search": 3,
    "slimrl_serve.http": 0,
    "slimrl_serve": 1,
    "slimrl_tools.findings": 0,
    "slimrl_tools.system": 0,
    "slimrl_tools.toml_text": 0,
    "slimrl_tools.check": 1,
    "slimrl_tools.curves": 1,
    "slimrl_tools.doctor": 1,
    "slimrl_tools.plan": 1,
    "slimrl_tools.prime_rl": 1,
    "slimrl_tools.sharing": 2,
    "slimrl_tools.commands": 3,
    "slimrl_tools": 4,
}
# The only places where a plug-in imports, or starts, another one: its pyproject.toml and its README say so, too.
BORROWED = {
    ("slimrl_cluster.commands.sampler", "slimrl_serve.start"),
    ("slimrl_sandbox.server", "slimrl_serve.http"),
    ("slimrl_search.services.container", "slimrl_sandbox"),
    ("slimrl_search.wiki_search.tools", "slimrl_sandbox.base"),
}
# How many lines a distribution may have, as `wc -l` counts them. Who needs more takes out something else.
BUDGETS = {
    "slimrl": 26_330,
    "slimrl_cluster": 3_130,
    "slimrl_envs": 6_360,
    "slimrl_sandbox": 1_880,
    "slimrl_search": 3_140,
    "slimrl_serve": 2_570,
    "slimrl_tools": 5_580,
    "slimrl_view": 1_860,
}
# The two halves of the program, which know each other only through `types` and `transport`.
NEVER = {
    "slimrl.trainer": ("slimrl.inference", "slimrl.environments", "slimrl.rollout", "slimrl.orchestrator"),
    "slimrl.orchestrator": ("slimrl.trainer",),
}
# Each file is a command, and commands do not know one another.
COMMANDS = ("slimrl.commands", "slimrl_cluster.commands", "slimrl_tools.commands")
# What the face of the package is made of.
PUBLIC = ("slimrl.api", "slimrl.errors", "slimrl.types")
MAY_IMPORT_IN_FUNCTIONS = ("slimrl",)  # `import slimrl` must not wait for PyTorch
HEAVY = {"torch", "transformers", "numpy"}
LIGHT = ("slimrl.io", "slimrl.plugins", "slimrl.config", "slimrl.cli")  # `slimrl rl --help` answers at once


@dataclass(frozen=True, slots=True)
class Imported:
    """One import statement's target, and where it stands."""

    target: str
    line: int
    in_function: bool


def violations(sources: Mapping[str, str]) -> list[str]:
    """What is wrong with a set of modules, given as module name -> source text. Empty when all is well."""
    found: list[str] = []
    graph: dict[str, set[str]] = {}
    for module, source in sources.items():
        if "utils" in module.split("."):
            found.append(f"{module}: a module called utils has no subject; name it after what it does")
        tree = ast.parse(source)
        imports = list(imports_of(tree, module, sources.keys()))
        found += [f"{module}:{i.line}: {problem}" for i in imports if (problem := _problem(module, i))]
        found += [f"{module}:{i.line}: {problem}" for i in named_in(tree) if (problem := _plugin_problem(module, i))]
        graph[module] = {i.target for i in imports if i.target in sources and i.target != module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append(f"import cycle: {' -> '.join(error.args[1])}")
    return found


def imports_of(tree: ast.AST, module: str, modules: Collection[str], in_function: bool = False) -> Iterator[Imported]:
    """Every module that the tree imports; `from package import module` counts as the module."""
    for node in ast.iter_child_nodes(tree):
        if _starts_the_program(node):
            continue
        inside = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        if isinstance(node, ast.Import):
            yield from (Imported(alias.name, node.lineno, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # as if it stood in a plain module; a package's __init__ has no use for it here
                base = ".".join([*module.split(".")[: -node.level], *([base] if base else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield Imported(full if full in modules else base, node.lineno, inside)
        else:
            yield from imports_of(node, module, modules, inside)


def named_in(tree: ast.AST) -> Iterator[Imported]:
    """Every module of a plug-in that a text of the tree names, as `module:function` or for `python -m`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = re.fullmatch(r"(slimrl_[a-z]+(?:\.\w+)*)(?::\w+)?", node.value)
            if found and package_of(found[1]) in PLUGINS:
                yield Imported(found[1], node.lineno, True)


def _starts_the_program(node: ast.AST) -> bool:
    """Whether this is `if __name__ == "__main__":`. A module that is run as a program hands over to its command there,
    and then stands above all floors."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def unit_of(module: str) -> str:
    """The entry of the floors that the module belongs to, a whole plug-in if it has none; empty for a package of the
    core without a floor."""
    parts = module.split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    unit = next(name for name in names if name in FLOORS or name in PLUGIN_FLOORS or "." not in name)
    return unit if unit != CORE or module == CORE else ""


def _problem(module: str, imported: Imported) -> str:
    unit, target = unit_of(module), imported.target
    if not unit:
        return "this package has no floor; give it one in tests/project/test_floors.py and docs/structure.md"
    if problem := _entry_problem(module, target):
        return problem
    if package_of(target) != CORE and package_of(target) not in PLUGINS:
        return _outside_problem(unit, target)
    if imported.in_function and module not in MAY_IMPORT_IN_FUNCTIONS:
        return f"imports {target} inside a function; import at the top, or move what causes the cycle"
    if problem := _plugin_problem(module, imported):
        return problem
    for ours, theirs in NEVER.items():
        if _is_within(module, ours) and any(_is_within(target, other) for other in theirs):
            return f"imports {target}; {ours} never does: the halves meet in types, transport and launch"
    if any(_is_within(module, unit) and _is_within(target, unit) and module != target for unit in COMMANDS):
        return f"imports {target}; commands do not know one another"
    if folder := _entered_folder(module, target):
        return f"imports {target}; what is inside {folder} is that environment's own"
    return _floor_problem(module, target)


def _entry_problem(module: str, target: str) -> str:
    """The problem of a module with the commands of a plug-in that imports more than what a command is."""
    is_entry = package_of(module) in PLUGINS and module.endswith(".plugin")
    if is_entry and target != "slimrl.plugins" and package_of(target) not in sys.stdlib_module_names:
        return f"imports {target}; `slimrl --help` loads this module, so name what a command needs by a text"
    return ""


def _entered_folder(module: str, target: str) -> str:
    """The folder of an environment of the core that an import reaches into from outside; empty if it reaches into
    none."""
    parts = target.split(".")
    folder = ".".join(parts[:3])
    is_inside_a_folder = len(parts) > 3 and parts[:2] == ["slimrl", "environments"]
    return folder if is_inside_a_folder and not _is_within(module, folder) else ""


def _plugin_problem(module: str, imported: Imported) -> str:
    """The problem of a module that imports a plug-in, or names a module of it."""
    target = imported.target
    if package_of(target) in (CORE, package_of(module)):
        return ""
    if package_of(module) == CORE:
        return f"imports {target}; the core knows no plug-in, and finds what they add by entry points"
    if any(_is_within(module, unit) and _is_within(target, other) for unit, other in BORROWED):
        return ""
    return f"imports {target}; a plug-in imports the core, and another plug-in only as BORROWED has it"


def _floor_problem(module: str, target: str) -> str:
    """The problem of an import inside of one distribution that does not go down."""
    unit, other = unit_of(module), unit_of(target)
    if package_of(module) != package_of(target) or unit == other or not other:
        return ""
    if (unit == CORE and target in PUBLIC) or target in PLUGINS:
        return ""
    floors = FLOORS if package_of(module) == CORE else PLUGIN_FLOORS
    if floors[other] >= floors[unit]:
        return f"floor {floors[unit]} imports {target} from floor {floors[other]}; imports go down"
    return ""


def _outside_problem(unit: str, target: str) -> str:
    package = package_of(target)
    if FLOORS.get(unit) == 0 and package not in sys.stdlib_module_names:
        return f"floor 0 imports {package}; it uses the standard library only"
    if unit in LIGHT and package in HEAVY:
        return f"{unit} imports {package}; it must load at once"
    return ""


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def own_sources() -> dict[str, str]:
    """Every module of slimrl and its plug-ins."""
    return {module: source for package in HOMES for module, source in modules_of(package).items()}


@pytest.mark.slow
def test_every_import_is_allowed_and_every_floor_has_a_module() -> None:
    sources = own_sources()
    assert violations(sources) == []
    without_floors = {CORE, *PLUGINS} - FLOORS.keys() - PLUGIN_FLOORS.keys()
    assert {unit_of(module) for module in sources} - without_floors == FLOORS.keys() | PLUGIN_FLOORS.keys()
    assert set(FLOORS.values()) == set(range(9))


@pytest.mark.slow
def test_every_borrowing_is_needed() -> None:
    used = set()
    for module, source in own_sources().items():
        tree = ast.parse(source)
        targets = [one.target for one in chain(imports_of(tree, module, ()), named_in(tree))]
        used |= {
            (unit, other)
            for unit, other in BORROWED
            if _is_within(module, unit) and any(_is_within(target, other) for target in targets)
        }
    assert used == BORROWED


@pytest.mark.parametrize("package", PLUGINS)
def test_a_plug_in_says_which_others_it_needs(package: str) -> None:
    others = {package_of(other).replace("_", "-") for unit, other in BORROWED if package_of(unit) == package}
    required = {match[0] for one in requirements_of(package) if (match := re.match(r"slimrl-[a-z]+", one))}
    assert required == others
    readme = (HOMES[package] / "README.md").read_text(encoding="utf-8")
    (imports,) = re.findall(r"^- \*\*Imports\*\* (.+?)\n(?=\n|- )", readme, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"slimrl-[a-z]+", imports)) == others
    assert others or imports.startswith("the core alone.")


def test_every_plug_in_needs_the_core() -> None:
    assert [package for package in PLUGINS if "slimrl" not in project_of(package)["dependencies"]] == []


@pytest.mark.parametrize("package", HOMES)
def test_a_distribution_stays_within_its_budget(package: str) -> None:
    assert sum(path.read_bytes().count(b"\n") for path in files_of(package)) <= BUDGETS[package]


def plugins_in_a_test(source: str) -> list[str]:
    """The plug-ins, and tests of plug-ins, that a test imports, or names in a text."""
    tree = ast.parse(source)
    texts = [one.value for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    named = [name for text in texts for name in re.findall(r"\bslimrl_[a-z]+", text)]
    return [name for name in [*imported_by_a_test(source), *named] if package_of(name) in [*PLUGINS, "packages"]]


def imported_by_a_test(source: str) -> list[str]:
    """The plug-ins, and tests of plug-ins, that a test imports."""
    targets = [one.target for one in imports_of(ast.parse(source), "", ())]
    return [target for target in targets if package_of(target) in [*PLUGINS, "packages"]]


@pytest.mark.slow
def test_the_tests_of_the_core_need_no_plug_in() -> None:
    found = {}
    for path in [ROOT / "conftest.py", *(ROOT / "tests").rglob("*.py")]:
        # Those of the project read the files of plug-ins, and import none.
        find = imported_by_a_test if path.is_relative_to(ROOT / "tests" / "project") else plugins_in_a_test
        found[str(path.relative_to(ROOT))] = find(path.read_text(encoding="utf-8"))
    assert {name: plugins for name, plugins in found.items() if plugins} == {}


def test_a_test_that_needs_a_plug_in_is_found() -> None:
    assert imported_by_a_test("def f():\n    from slimrl_envs.wordle import rules") == ["slimrl_envs.wordle"]
    assert imported_by_a_test("import packages.envs.tests.tiny, slimrl.io.http") == ["packages.envs.tests.tiny"]
    assert plugins_in_a_test('patch("slimrl_view.api.Api", "slimrl_other")') == ["slimrl_view"]


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("slimrl.config.run", "from slimrl.commands.rl import run_rl", "imports go down"),
        ("slimrl.monitor.sinks", "from ..launch import local", "imports go down"),
        ("slimrl.trainer.rl.train", "from slimrl.inference.engine import Engine", "never does"),
        ("slimrl.trainer.step", "from slimrl import environments", "never does"),
        ("slimrl.orchestrator.collect", "from slimrl.trainer.losses import aipo", "never does"),
        ("slimrl.launch.parts", "def f():\n    from slimrl.types import Task", "inside a function"),
        ("slimrl.launch.parts", "class A:\n    async def f(self):\n        import slimrl.errors", "inside a function"),
        ("slimrl.types", "import numpy", "standard library only"),
        ("slimrl.config.model", "from torch import nn", "must load at once"),
        ("slimrl.launch.parts", "from slimrl.environments.dataset.rows import Row", "that environment's own"),
        ("slimrl.commands.rl", "from slimrl.commands.eval import run_eval", "do not know one another"),
        ("slimrl_tools.commands.plan", "import slimrl_tools.commands.push", "do not know one another"),
        ("slimrl.trainer.utils", "", "called utils"),
        ("slimrl.attic.box", "from slimrl.types import Task", "no floor"),
        ("slimrl.launch.parts", "from slimrl_cluster.launch.slurm import submit", "the core knows no plug-in"),
        ("slimrl.launch.parts", "RUN = 'slimrl_cluster.launch.slurm:submit'", "the core knows no plug-in"),
        ("slimrl_view.command", "RUN = 'slimrl_cluster.launch.status:status'", "only as BORROWED has it"),
        ("slimrl_sandbox.server", "from slimrl_serve.app import App", "only as BORROWED has it"),
        ("slimrl_cluster.transport.roster", "from slimrl_cluster.launch.slurm import submit", "imports go down"),
        ("slimrl_view.plugin", "from slimrl_view.command import run", "loads this module"),
    ],
)
def test_a_broken_rule_is_found(module: str, source: str, complaint: str) -> None:
    context = dict.fromkeys(("slimrl", "slimrl.monitor", "slimrl.monitor.sinks", "slimrl.environments"), "")
    found = violations({**context, module: source})
    assert len(found) == 1
    assert complaint in found[0]


def test_a_cycle_inside_a_package_is_found() -> None:
    cycle = {"slimrl.models.a": "from slimrl.models.b import B", "slimrl.models.b": "from slimrl.models import a"}
    (found,) = violations(cycle)
    assert "import cycle" in found


def test_what_is_allowed_passes() -> None:
    allowed = {
        "slimrl.types": "import math",
        "slimrl.trainer.step": "import torch\nfrom slimrl.transport.base import Batch",
        "slimrl.trainer.logprobs": "from slimrl.trainer import step",
        "slimrl.stats": "import numpy",
        "slimrl": "def __getattr__(name):\n    from slimrl import api",
        "slimrl.api": "from slimrl.commands.rl import run_rl",
        "slimrl.environments.dataset.taskset": "from slimrl.environments.dataset.rows import Row",
        "slimrl_envs.wordle.environment": "from slimrl_envs.wordle.rules import Game",
        "slimrl_cluster.commands.sampler": "from slimrl_serve.start import serve\nfrom slimrl.launch import parts",
        "slimrl_cluster.plugin": "from slimrl.plugins import Command\nRUN = 'slimrl_cluster.commands.worker:run'",
        "slimrl.launch.parts": "def f():\n    import numpy",
        "slimrl.trainer.rl.train": "from slimrl.trainer.step import TrainStep\n"
        "if __name__ == '__main__':\n    from slimrl.cli import trainer",
    }
    assert violations(allowed) == []


@pytest.mark.parametrize(
    "module", ["slimrl.cli", "slimrl.commands.table", "slimrl.config.reading.load", "slimrl.config.reading.help"]
)
def test_configuration_loads_nothing_heavy(module: str) -> None:
    program = f"import sys, {module}; print(*sorted({HEAVY!r} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []
