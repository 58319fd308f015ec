"""The house has floors: a module imports only from lower floors or from its own package. See docs/structure.md.

`violations` reads sources, not a running program, so it is tested below on small sources that break each rule.
"""

import ast
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"

# Every module belongs to the entry with the longest matching name.
FLOORS = {
    "slimrl": 0,
    "slimrl.types": 0,
    "slimrl.errors": 0,
    "slimrl.io": 1,
    "slimrl.stats": 2,
    "slimrl.config": 2,
    "slimrl.models": 3,
    "slimrl.monitor": 3,
    "slimrl.retrieval": 3,
    "slimrl.sandbox": 3,
    "slimrl.transport": 3,
    "slimrl.inference": 4,
    "slimrl.trainer": 4,
    "slimrl.services": 4,
    "slimrl.tools": 4,
    "slimrl.judges": 4,
    "slimrl.viewer": 4,
    "slimrl.sharing": 4,
    "slimrl.environments": 5,
    "slimrl.doctor": 5,
    "slimrl.rollout": 6,
    "slimrl.plan": 6,
    "slimrl.trainer.rl": 7,
    "slimrl.trainer.sft": 7,
    "slimrl.orchestrator": 7,
    "slimrl.eval": 7,
    "slimrl.integrations": 7,
    "slimrl.launch": 8,
    "slimrl.commands": 9,
    "slimrl.api": 10,
    "slimrl.cli": 10,
    "slimrl.scripts": 11,
    "slimrl.__main__": 11,
}
# The two halves of the program, which know each other only through `types` and `transport`.
NEVER = {
    "slimrl.trainer": ("slimrl.inference", "slimrl.environments", "slimrl.orchestrator"),
    "slimrl.orchestrator": ("slimrl.trainer",),
}
# What the face of the package is made of.
PUBLIC = ("slimrl.api", "slimrl.errors", "slimrl.types")
# They import a command when it is called for: no `--help`, and no `import slimrl`, must wait for PyTorch.
MAY_IMPORT_IN_FUNCTIONS = ("slimrl", "slimrl.cli", "slimrl.scripts.wiki_search")
HEAVY = {"torch", "transformers", "numpy"}
LIGHT = ("slimrl.io", "slimrl.config")  # `slimrl rl --help` answers at once
# Whoever may know what is inside an environment's folder, besides the folder itself.
MAY_ENTER = ("slimrl.commands", "slimrl.scripts")


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
        imports = list(imports_of(ast.parse(source), module, sources.keys()))
        found += [f"{module}:{i.line}: {problem}" for i in imports if (problem := _problem(module, i))]
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


def _starts_the_program(node: ast.AST) -> bool:
    """Whether this is `if __name__ == "__main__":`. A module that is run as a program hands over to its command there,
    and then stands above all floors."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def unit_of(module: str) -> str:
    """The entry of FLOORS that the module belongs to; empty if it has none."""
    parts = module.split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    unit = next(name for name in names if name in FLOORS or "." not in name)
    return unit if unit != "slimrl" or module == "slimrl" else ""


def _problem(module: str, imported: Imported) -> str:
    unit, target = unit_of(module), imported.target
    if not unit:
        return "this package has no floor; give it one in tests/project/test_floors.py and docs/structure.md"
    if target.partition(".")[0] != "slimrl":
        return _outside_problem(unit, target)
    if imported.in_function and module not in MAY_IMPORT_IN_FUNCTIONS:
        return f"imports {target} inside a function; import at the top, or move what causes the cycle"
    for ours, theirs in NEVER.items():
        if _is_within(module, ours) and any(_is_within(target, other) for other in theirs):
            return f"imports {target}; {ours} never does: the halves meet in types, transport and launch"
    if _is_within(module, "slimrl.commands") and _is_within(target, "slimrl.commands") and module != target:
        return f"imports {target}; commands do not know one another"
    if folder := _entered_folder(module, target):
        return f"imports {target}; what is inside {folder} is that environment's own"
    target_unit = unit_of(target)
    if unit == "slimrl" and target in PUBLIC:
        return ""
    if target_unit and target_unit != unit and FLOORS[target_unit] >= FLOORS[unit]:
        return f"floor {FLOORS[unit]} imports {target} from floor {FLOORS[target_unit]}; imports go down"
    return ""


def _entered_folder(module: str, target: str) -> str:
    """The folder of one environment that an import reaches into from outside; empty if it reaches into none."""
    parts = target.split(".")
    folder = ".".join(parts[:3])
    is_inside_a_folder = len(parts) > 3 and parts[:2] == ["slimrl", "environments"]
    may_enter = _is_within(module, folder) or any(_is_within(module, unit) for unit in MAY_ENTER)
    return folder if is_inside_a_folder and not may_enter else ""


def _outside_problem(unit: str, target: str) -> str:
    package = target.partition(".")[0]
    if FLOORS[unit] == 0 and package not in sys.stdlib_module_names:
        return f"floor 0 imports {package}; it uses the standard library only"
    if unit in LIGHT and package in HEAVY:
        return f"{unit} imports {package}; it must load at once"
    return ""


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def own_sources() -> dict[str, str]:
    """Every module of slimrl."""
    sources = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return sources


@pytest.mark.slow
def test_every_import_goes_down() -> None:
    assert violations(own_sources()) == []


@pytest.mark.slow
def test_every_module_has_a_floor() -> None:
    assert [module for module in own_sources() if not unit_of(module)] == []


@pytest.mark.slow
def test_every_floor_is_inhabited() -> None:
    assert {unit_of(module) for module in own_sources()} == set(FLOORS)


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("slimrl.config.run", "from slimrl.commands.rl import run_rl", "imports go down"),
        ("slimrl.models.load", "from slimrl.monitor import sinks", "imports go down"),
        ("slimrl.models.load", "import slimrl.monitor.sinks", "imports go down"),
        ("slimrl.errors", "from slimrl.types import Task", "imports go down"),
        ("slimrl.monitor.sinks", "from ..launch import local", "imports go down"),
        ("slimrl.trainer.step", "from slimrl.trainer.rl.train import train", "imports go down"),
        ("slimrl.trainer.sft.train", "from slimrl.trainer.rl.train import train", "imports go down"),
        ("slimrl.trainer.rl.train", "from slimrl.inference.engine import Engine", "never does"),
        ("slimrl.trainer.step", "from slimrl import environments", "never does"),
        ("slimrl.orchestrator.collect", "from slimrl.trainer.losses import aipo", "never does"),
        ("slimrl.launch.parts", "def f():\n    from slimrl.types import Task", "inside a function"),
        ("slimrl.launch.parts", "class A:\n    async def f(self):\n        import slimrl.errors", "inside a function"),
        ("slimrl.types", "import numpy", "standard library only"),
        ("slimrl.config.model", "from torch import nn", "must load at once"),
        ("slimrl.config.model", "def f():\n    import torch", "must load at once"),
        ("slimrl.io.http", "import numpy", "must load at once"),
        ("slimrl.eval.report", "from slimrl.environments.wordle.rules import Game", "that environment's own"),
        ("slimrl.environments.base", "from slimrl.environments.wordle.rules import Game", "that environment's own"),
        ("slimrl.commands.rl", "from slimrl.commands.eval import run_eval", "do not know one another"),
        ("slimrl.trainer.utils", "", "called utils"),
        ("slimrl.attic.box", "from slimrl.types import Task", "no floor"),
    ],
)
def test_a_broken_rule_is_found(module: str, source: str, complaint: str) -> None:
    context = dict.fromkeys(("slimrl", "slimrl.monitor", "slimrl.monitor.sinks", "slimrl.environments"), "")
    found = violations({**context, module: source})
    assert len(found) == 1
    assert complaint in found[0]


def test_a_cycle_inside_a_package_is_found() -> None:
    cycle = {"slimrl.models.a": "from slimrl.models.b import B", "slimrl.models.b": "from slimrl.models import a"}
    found = violations(cycle)
    assert len(found) == 1
    assert "import cycle" in found[0]


def test_what_is_allowed_passes() -> None:
    allowed = {
        "slimrl.types": "import math",
        "slimrl.trainer.step": "import torch\nfrom slimrl.transport.base import Batch",
        "slimrl.trainer.logprobs": "from slimrl.trainer import step",
        "slimrl.stats": "import numpy",
        "slimrl.environments.wordle.environment": "from slimrl.environments.wordle.rules import Game",
        "slimrl.commands.play": "from slimrl.environments.wordle.rules import Game",
        "slimrl.launch.parts": "def f():\n    import numpy",
        "slimrl.cli": "def rl():\n    from slimrl.commands.rl import run_rl",
        "slimrl.trainer.rl.train": "from slimrl.trainer.step import TrainStep\n"
        "if __name__ == '__main__':\n    from slimrl.cli import trainer",
    }
    assert violations(allowed) == []


@pytest.mark.parametrize("module", ["slimrl.cli", "slimrl.config.reading.load", "slimrl.config.reading.help"])
def test_configuration_loads_nothing_heavy(module: str) -> None:
    program = f"import sys, {module}; print(*sorted({HEAVY!r} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []
