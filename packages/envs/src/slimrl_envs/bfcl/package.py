"""Loads tasks, checkers and simulated APIs from the installed package bfcl-eval, without the package's requirements.

Two of its modules cannot be imported as they are. `ast_checker` reads one flag from a module that imports the clients
of every vendor, and `multi_turn_checker` evaluates a model's text as Python code. `load_with` runs their source with
other objects in place of these two imports. It changes neither the package nor `sys.modules`.
"""

import builtins
import copy
import importlib
import importlib.util
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from slimrl.errors import UserError

INSTALL = "pip install --no-deps bfcl-eval==2026.3.23 && pip install mpmath"
PREFIX = "BFCL_v4_"
CHECKERS = "bfcl_eval.eval_checker"
MODEL = "slimrl"  # the name of the model in calls of the checkers
# BFCL adds this sentence to the description of every function of Python.
PYTHON_HINT = " Note that the provided function is in Python 3 syntax."

Entry = dict[str, Any]
"""A row of BFCL's data with three more keys: `category`, `ground_truth`, and `function`, the functions that the policy
may call, in BFCL's form. A row of several turns also has `involved_classes`, `initial_config` and `missed_function`."""
Verdict = Mapping[str, Any]
"""The result of a checker: `valid` and, if it is false, `error_type`."""


def load_with(name: str, stand_ins: Mapping[str, object]) -> dict[str, Any]:
    """Run the source of the module `name` and return its variables. An import of a module that is a key of `stand_ins`
    returns the object in `stand_ins`."""

    def find(asked: str, *rest: Any) -> Any:
        return stand_ins[asked] if asked in stand_ins else builtins.__import__(asked, *rest)

    spec = _require(importlib.util.find_spec, name)
    module = importlib.util.module_from_spec(spec)
    vars(module)["__builtins__"] = {**vars(builtins), "__import__": find}
    spec.loader.exec_module(module)
    return vars(module)


@cache
def load_entries(category: str) -> dict[str, Entry]:
    """Return the rows of a category by their ids, in the order of the file."""
    answers = _data() / "possible_answer" / f"{PREFIX}{category}.json"
    truths = {one["id"]: one["ground_truth"] for one in _rows(answers)} if answers.exists() else {}
    entries = {}
    for row in _rows(_data() / f"{PREFIX}{category}.json"):
        functions = [_with_hint(function) for function in row.get("function", ())]
        functions += [function for api in row.get("involved_classes", ()) for function in _functions_of(api)]
        more = {"category": category, "ground_truth": truths.get(row["id"], []), "function": functions}
        entries[row["id"]] = row | more
    return entries


@cache
def _functions_of(api: str) -> list[dict[str, Any]]:
    path = _data() / "multi_turn_func_doc" / _backend().MULTI_TURN_FUNC_DOC_FILE_MAPPING[api]
    return [_with_hint(function) for function in _rows(path)]


def _with_hint(function: dict[str, Any]) -> dict[str, Any]:
    return {**function, "description": function["description"] + PYTHON_HINT}


def _data() -> Path:
    return Path(_require(importlib.import_module, "bfcl_eval").__path__[0]) / "data"


def new_api(name: str, config: Mapping[str, Any]) -> Any:
    """Return a simulated API in the state that `config` describes."""
    backend = _backend()
    api = vars(importlib.import_module(backend.CLASS_FILE_PATH_MAPPING[name]))[name]()
    if name not in backend.STATELESS_CLASSES:
        api._load_scenario(copy.deepcopy(config), long_context=False)
    return api


@cache
def openapi_types() -> dict[str, str]:
    """Return BFCL's table of its type names, each with the name in JSON schemas."""
    return cast(dict[str, str], importlib.import_module("bfcl_eval.constants.type_mappings").GORILLA_TO_OPENAPI)


@cache
def ast_checker() -> Callable[..., Verdict]:
    """Return BFCL's checker of single-turn calls. It keeps dots in the names of functions."""
    keeps_dots = SimpleNamespace(underscore_to_dot=False)
    stand_in = SimpleNamespace(MODEL_CONFIG_MAPPING={MODEL: keeps_dots})
    names = load_with(f"{CHECKERS}.ast_eval.ast_checker", {"bfcl_eval.constants.model_config": stand_in})
    return cast(Callable[..., Verdict], names["ast_checker"])


def multi_turn_checker(execute: Callable[..., Any]) -> Callable[..., Verdict]:
    """Return BFCL's checker of episodes of several turns. `execute` makes the calls in place of the package's own
    `execute_multi_turn_func_call`, which evaluates them as code."""
    utils = f"{CHECKERS}.multi_turn_eval.multi_turn_utils"
    is_empty = importlib.import_module(utils).is_empty_execute_response
    stand_in = SimpleNamespace(execute_multi_turn_func_call=execute, is_empty_execute_response=is_empty)
    names = load_with(f"{CHECKERS}.multi_turn_eval.multi_turn_checker", {utils: stand_in})
    return cast(Callable[..., Verdict], names["multi_turn_checker"])


def python_language() -> Any:
    """Return BFCL's name of the language Python."""
    return importlib.import_module("bfcl_eval.constants.enums").Language.PYTHON


def _backend() -> Any:
    return importlib.import_module("bfcl_eval.constants.executable_backend_config")


def _rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def _require(find: Callable[[str], Any], name: str) -> Any:
    try:
        return find(name)
    except ModuleNotFoundError as error:
        raise UserError(f"`bfcl:NAME` needs the package bfcl-eval ({error}): {INSTALL}") from error
