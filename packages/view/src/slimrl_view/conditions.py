"""Translates the conditions and the order from the page to SQL. Errors name the known fields."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slimrl.errors import UserError, nearest
from slimrl.io.text import is_too_deep
from slimrl_view.lines import encodable

NUMBERS = ("step", "reward", "advantage", "turns", "tokens", "tool_calls", "zero_signal", "version")
TEXTS = ("task", "environment", "role", "drop", "stop")
FIELDS = (*NUMBERS, *TEXTS, "text", "metric.NAME")
METRIC = "metric."
OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
HAS = "has"
GROUP_ORDERS = ("step", "mean", "std", "task", "num", "min", "max", "dropped", "zero_signal")
MAX_CONDITIONS = 64
LARGEST = 1e300  # whole numbers in JSON may have more digits than a float can hold
EXAMPLE = '[{"field": "reward", "op": ">", "value": 0.5}]'


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece of SQL and the values of its question marks."""

    sql: str
    values: tuple[Any, ...] = ()


def where_clause(text: str) -> Clause:
    """Return the condition on rollouts from the JSON `where`. Raises UserError if it is malformed."""
    try:
        conditions = json.loads(text or "[]")
    except (ValueError, RecursionError):
        raise UserError(f"`where` is no JSON. It is a list such as {EXAMPLE}.") from None
    if not isinstance(conditions, list) or len(conditions) > MAX_CONDITIONS or is_too_deep(conditions):
        raise UserError(f"`where` must be a list of at most {MAX_CONDITIONS} conditions, such as {EXAMPLE}.")
    # The search in texts is slowest, so it is last: the other conditions have excluded most rollouts before.
    clauses = sorted(map(_condition, conditions), key=lambda clause: "texts" in clause.sql)
    return Clause(" AND ".join(clause.sql for clause in clauses) or "1", tuple(v for c in clauses for v in c.values))


def order_of_rollouts(sort: str) -> Clause:
    """Return the order of rollouts for `sort`, such as `-reward`; by step and line without one. Raises UserError."""
    return _order(sort, _column(sort.removeprefix("-")) if sort else Clause(""), "step, id")


def order_of_groups(sort: str) -> Clause:
    """Return the order of groups for `sort`, such as `-std`; by step without one. Raises UserError."""
    name = sort.removeprefix("-")
    if sort and name not in GROUP_ORDERS:
        raise UserError(f"groups cannot be sorted by `{name}`.{nearest(name, GROUP_ORDERS)}")
    return _order(sort, Clause(name), "step, file, grp")


def _order(sort: str, by: Clause, ties: str) -> Clause:
    direction = "DESC" if sort.startswith("-") else "ASC"
    return Clause(f"{by.sql} {direction} NULLS LAST, {ties}", by.values) if sort else Clause(ties)


def _column(name: str) -> Clause:
    """Return the SQL of a field. Raises UserError if it is unknown."""
    if name.startswith(METRIC):
        metric = encodable(name.removeprefix(METRIC))
        if '"' in metric or "\\" in metric:
            raise UserError(f"the metric {metric!r} cannot be asked for: its name has a quote or a backslash in it.")
        return Clause("json_extract(metrics, ?)", (f'$."{metric}"',))
    if name not in NUMBERS + TEXTS:
        raise UserError(f"there is no field `{name}`.{nearest(name, FIELDS)}")
    return Clause(f'"{name}"')


def _condition(condition: Any) -> Clause:
    if not isinstance(condition, Mapping) or not {"field", "op", "value"} <= condition.keys():
        raise UserError(f"a condition has `field`, `op` and `value`, as in {EXAMPLE}.")
    field, operator, value = condition["field"], condition["op"], condition["value"]
    if not isinstance(field, str) or not isinstance(operator, str):
        raise UserError(f"`field` and `op` of a condition are texts, as in {EXAMPLE}.")
    if operator not in (*OPERATORS, HAS):
        raise UserError(f"there is no operator `{operator}`. Known: {', '.join((*OPERATORS, HAS))}.")
    if field == "text" or field in TEXTS:
        return _text_condition(field, operator, value)
    column = _column(field)
    if operator == HAS:
        raise UserError(f"`{field}` is a number: it can be compared by {', '.join(OPERATORS)}.")
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > LARGEST:
        raise UserError(f"`{field}` is compared with a number, and not with {value!r:.80}.")
    return Clause(f"{column.sql} {operator} ?", (*column.values, float(value)))


def _text_condition(field: str, operator: str, value: Any) -> Clause:
    known = (HAS,) if field == "text" else ("=", "!=", HAS)
    if operator not in known:
        raise UserError(f"`{field}` is a text: it can be compared by {', '.join(f'`{one}`' for one in known)} alone.")
    if not isinstance(value, str):
        raise UserError(f"`{field}` is compared with a text, and not with {value!r:.80}.")
    wanted = encodable(value)
    if operator != HAS:
        return Clause(f'"{field}" {operator} ?', (wanted,))
    lower = "(SELECT text FROM texts WHERE texts.id = rollouts.id)" if field == "text" else f'lowercase("{field}")'
    return Clause(f"instr({lower}, ?) > 0", (wanted.lower(),))
