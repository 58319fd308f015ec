"""Sorts the results of parallel tool calls into the order of the calls. Templates write no ids, so a model can match
the results with the calls only by their order."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, TypeVar

M = TypeVar("M", bound=Mapping[str, Any])


def in_order_of_calls(messages: Sequence[M]) -> list[M]:
    """Return the messages, with the results after each reply in the order of that reply's calls.

    Results without ids are sorted by name if each result names a different call; otherwise their order is unchanged.
    Raises ValueError for a result of an unknown call, for two results of one call, and for a call that has no result
    although a later call of the same reply has one.
    """
    ordered: list[M] = []
    while len(ordered) < len(messages):
        message = messages[len(ordered)]
        ordered.append(message)
        if calls := message.get("tool_calls"):
            results = list(takewhile(lambda one: one["role"] == "tool", messages[len(ordered) :]))
            ordered += _sort(calls, results)
    return ordered


def id_text(given: Any) -> str:
    """Return the id of a call as text; empty if `given` is None. A columnar file may hold the id 0 as 0.0, so 0.0
    becomes "0"."""
    if isinstance(given, float) and given.is_integer():
        return str(int(given))
    return "" if given is None else str(given)


def _sort(called: Sequence[Mapping[str, Any]], results: list[M]) -> list[M]:
    calls = [id_text(call.get("id")) for call in called]
    ids = [id_text(result.get("tool_call_id")) for result in results]
    if not all(calls) or not all(ids) or len(set(calls)) < len(calls):
        calls = [call["function"]["name"] for call in called]
        ids = [str(result.get("name")) for result in results]
        if len(set(calls)) < len(calls) or len(set(ids)) < len(ids) or not set(ids) <= set(calls):
            return results
        return [result for _, result in sorted(zip(ids, results, strict=True), key=lambda pair: calls.index(pair[0]))]
    if unknown := [one for one in ids if one not in calls]:
        raise ValueError(f"a result is of the call `{unknown[0]}`, and the reply before it has only {_names(calls)}")
    if len(set(ids)) < len(ids):
        twice = next(one for one in ids if ids.count(one) > 1)
        raise ValueError(f"the call `{twice}` has two results")
    if missing := [one for one in calls[: max(map(calls.index, ids), default=0)] if one not in ids]:
        raise ValueError(f"the call `{missing[0]}` has no result, and a later call of the same reply has one")
    return sorted(results, key=lambda result: calls.index(id_text(result["tool_call_id"])))


def _names(ids: Sequence[str]) -> str:
    return ", ".join(f"`{one}`" for one in ids)
