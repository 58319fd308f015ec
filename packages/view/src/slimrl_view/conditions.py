"""Translates the page's filter conditions and sort order to SQL. Error messages list the known fields."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from slimrl.config.base import describe_faults
from slimrl.errors import UserError, nearest

NUMBERS = ("step", "reward", "advantage", "turns", "tokens", "tool_calls", "zero_signal", "version")
TEXTS = ("task", "environment", "role", "drop", "stop")
FIELDS = (*NUMBERS, *TEXTS, "text", "metric.NAME")
METRIC = "metric."
HAS = "has"
OPERATORS_OF_TEXTS, OPERATORS_OF_NUMBERS = ["=", "!=", HAS], ["=", "!=", "<", "<=", ">", ">="]
GROUP_ORDERS = ("step", "mean", "std", "task", "num", "min", "max", "dropped", "zero_signal")
MAX_CONDITIONS = 64
EXAMPLE = '[{"field": "reward", "op": ">", "value": 0.5}]'


class Condition(BaseModel):
    """A condition on a field of a rollout. `has` is True if the field's text contains `value`. `<`, `<=`, `>` and `>=`
    compare only numbers."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    field: str
    op: Literal["=", "!=", "<", "<=", ">", ">=", "has"]
    value: str | float


CONDITIONS = TypeAdapter(Annotated[list[Condition], Field(max_length=MAX_CONDITIONS)])


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece of SQL and the values of its question marks."""

    sql: str
    values: tuple[Any, ...] = ()


def where_clause(text: str) -> Clause:
    """Return the condition on rollouts as SQL. `text` is the JSON of a request's `where`. Raises UserError if it is
    malformed."""
    try:
        conditions = CONDITIONS.validate_json(text.encode("utf-8", "replace") or b"[]")
    except ValidationError as error:
        found = f"{describe_faults(error):.300}"
        raise UserError(f"`where` is a list of at most {MAX_CONDITIONS} conditions, as {EXAMPLE}: {found}.") from None
    # The search in texts is slowest, so it is last: the other conditions exclude most rollouts first.
    clauses = sorted(map(_condition, conditions), key=lambda clause: "texts" in clause.sql)
    return Clause(" AND ".join(clause.sql for clause in clauses) or "1", tuple(v for c in clauses for v in c.values))


def order_of_rollouts(sort: str) -> Clause:
    """Return the SQL order of rollouts. `sort` is a field such as `reward`; `-reward` is the descending order. An empty
    `sort` orders by training step and line. Raises UserError for an unknown field."""
    return _order(sort, _column(sort.removeprefix("-")) if sort else Clause(""), "step, id")


def order_of_groups(sort: str) -> Clause:
    """Return the SQL order of groups, like `order_of_rollouts`. `sort` is a field of a group, such as `std`. Raises
    UserError for an unknown field."""
    name = sort.removeprefix("-")
    if sort and name not in GROUP_ORDERS:
        raise UserError(f"groups cannot be sorted by `{name}`.{nearest(name, GROUP_ORDERS)}")
    return _order(sort, Clause(name), "step, file, grp")


def _order(sort: str, by: Clause, ties: str) -> Clause:
    direction = "DESC" if sort.startswith("-") else "ASC"
    return Clause(f"{by.sql} {direction} NULLS LAST, {ties}", by.values) if sort else Clause(ties)


def _column(name: str) -> Clause:
    if name.startswith(METRIC):
        metric = name.removeprefix(METRIC).encode("utf-8", "replace").decode()
        if '"' in metric or "\\" in metric:
            raise UserError(f"the metric {metric!r} cannot be asked for: its name has a quote or a backslash in it.")
        return Clause("json_extract(metrics, ?)", (f'$."{metric}"',))
    if name not in NUMBERS + TEXTS:
        raise UserError(f"there is no field `{name}`.{nearest(name, FIELDS)}")
    return Clause(f'"{name}"')


def _condition(condition: Condition) -> Clause:
    field, operator, value = condition.field, condition.op, condition.value
    is_text = field == "text" or field in TEXTS
    column = Clause("(SELECT text FROM texts WHERE texts.id = rollouts.id)") if field == "text" else _column(field)
    kind, operators = ("text", OPERATORS_OF_TEXTS) if is_text else ("number", OPERATORS_OF_NUMBERS)
    if field == "text":
        operators = [HAS]
    if is_text != isinstance(value, str) or operator not in operators:
        raise UserError(f"`{field}` is compared with a {kind} by {', '.join(operators)}.")
    if operator != HAS:
        return Clause(f"{column.sql} {operator} ?", (*column.values, value))
    # The index has texts in lower case already.
    searched = column.sql if field == "text" else f"lowercase({column.sql})"
    return Clause(f"instr({searched}, ?) > 0", (str(value).lower(),))
