import json
import operator
import random
import statistics

import pytest

from packages.view.tests.made import indexed, make_run, record_of, write_held_out, write_step
from slimrl.errors import UserError
from slimrl_view.queries import Missing, Selection, pair_up

COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
WORDS = ("Red", "blue", "GREEN", "ÖL", "a%b", "x_y", "[x]")


METRICS = []  # the metrics of each rollout of the run, in order


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of 300 rollouts with values of all kinds."""
    path, rng = tmp_path_factory.mktemp("run"), random.Random(3)
    METRICS.clear()
    for step in range(5):
        records = []
        for group in range(15):
            for _ in range(4):
                reply = " ".join(rng.choices(WORDS, k=3))
                failure = rng.choice(("", "", "", "timeout", "judge_error"))
                metrics = {"score": round(rng.random(), 2), "a.b": float(group)} if rng.random() < 0.8 else {}
                METRICS.append(metrics)
                reward, advantage = round(rng.random(), 2), rng.choice((0.0, 0.5, -0.5))
                more = {"failure": failure, "metrics": metrics, "role": rng.choice(("", "black"))}
                records.append(record_of(f"train/Ü{group}", reply, reward, advantage, **more))
        write_step(path, step, records)
    return indexed(path)


def everything(run):
    """All rows, each with its metrics."""
    rows = run.index.rollouts(Selection(limit=5000))["rows"]
    return [row | {"metrics": metrics} for row, metrics in zip(rows, METRICS, strict=True)]


def holds(row, condition):
    field, op, value = condition["field"], condition["op"], condition["value"]
    if field == "text":
        return value.lower() in row["excerpt"].lower()
    found = row["metrics"].get(field[7:]) if field.startswith("metric.") else row[field]
    if found is None:
        return False
    return value.lower() in found.lower() if op == "has" else COMPARE[op](found, value)


FIELDS = ("step", "reward", "advantage", "tokens", "zero_signal", "version", "metric.score", "metric.a.b")
KINDS = (
    (FIELDS, [*COMPARE], (0, 1, 0.5, 3, 0.25, 7)),
    (("drop",), ("=", "!="), ("", "timeout", "judge_error")),
    (("task", "role", "stop"), ("has",), ("1", "LACK", "done", "N/ü1")),
    (("text",), ("has",), (*WORDS, "red b", "%", "_")),
)


def make_condition(rng):
    return dict(zip(("field", "op", "value"), map(rng.choice, rng.choice(KINDS)), strict=True))


@pytest.mark.slow
def test_filters_and_orders_agree_with_python(run):
    rows, rng = everything(run), random.Random(1)
    for _ in range(300):
        conditions = [make_condition(rng) for _ in range(rng.randrange(4))]
        sort = rng.choice(("", "reward", "-reward", "step", "-metric.score", "task", "-advantage"))
        wanted = [row["key"] for row in rows if all(holds(row, one) for one in conditions)]
        answer = run.index.rollouts(Selection(json.dumps(conditions), sort, 0, 5000))
        found = [row["key"] for row in answer["rows"]]
        assert (answer["total"], answer["matched"]) == (300, len(wanted))
        assert sorted(found) == sorted(wanted), conditions
        if sort:
            by = {row["key"]: row for row in rows}
            key = sort.removeprefix("-")
            values = [by[one]["metrics"].get(key[7:]) if key.startswith("metric.") else by[one][key] for one in found]
            known = [value for value in values if value is not None]
            assert known == sorted(known, reverse=sort.startswith("-"))
            assert values[len(known) :] == [None] * (len(values) - len(known))
        else:
            assert found == wanted


def test_pages_are_parts_of_the_whole(run):
    whole = run.index.rollouts(Selection(sort="-reward", limit=5000))["rows"]
    pages = [run.index.rollouts(Selection(sort="-reward", offset=at, limit=70))["rows"] for at in range(0, 350, 70)]
    assert [row for page in pages for row in page] == whole


def test_groups_are_those_with_a_rollout_that_meets_the_conditions(run):
    rows = everything(run)
    where = [{"field": "reward", "op": ">", "value": 0.9}, {"field": "drop", "op": "=", "value": ""}]
    answer = run.index.groups(Selection(json.dumps(where), "-std", 0, 5000))
    wanted = {row["group"] for row in rows if all(holds(row, one) for one in where)}
    assert {group["group"] for group in answer["groups"]} == wanted
    assert answer["total"] == len({row["group"] for row in rows})
    for group in answer["groups"]:
        members = [row for row in rows if row["group"] == group["group"]]
        rewards = [row["reward"] for row in members]
        good = [reward for reward in rewards if reward is not None]
        assert group["rewards"] == rewards
        assert (group["num"], group["dropped"]) == (len(members), sum(row["drop"] != "" for row in members))
        assert (group["min"], group["max"]) == (min(good), max(good))
        assert (group["mean"], group["std"]) == pytest.approx((statistics.fmean(good), statistics.pstdev(good)))
    deviations = [group["std"] for group in answer["groups"]]
    assert deviations == sorted(deviations, reverse=True)


def test_facets_count_what_matches(run):
    rows = [row for row in everything(run) if row["reward"] is not None and row["reward"] > 0.5]
    where = json.dumps([{"field": "reward", "op": ">", "value": 0.5}])
    facets = run.index.rollouts(Selection(where, limit=1), with_facets=True)["facets"]
    assert facets["role"] == {role: sum(row["role"] == role for row in rows) for role in ("", "black")}
    assert facets["drop"] == {"": len(rows)}


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ({"field": "rewrad", "op": ">", "value": 1}, "Did you mean `reward`"),
        ({"field": "reward; DROP TABLE rollouts", "op": ">", "value": 1}, "no field"),
        ({"field": "reward", "op": "LIKE", "value": 1}, "0.op = 'LIKE': Input should be '='"),
        ({"field": "reward", "op": ">", "value": "1"}, "compared with a number"),
        ({"field": "reward", "op": ">", "value": True}, "0.value.float = True"),
        ({"field": "reward", "op": ">", "value": 10**400}, "0.value.float"),
        ({"field": "reward", "op": "has", "value": 1}, "compared with a number by =, !=, <"),
        ({"field": "task", "op": "<", "value": "a"}, "compared with a text by =, !=, has"),
        ({"field": "task", "op": "=", "value": 1}, "compared with a text"),
        ({"field": "text", "op": "=", "value": "a"}, "compared with a text by has"),
        ({"field": 'metric."', "op": "=", "value": 1}, "a quote or a backslash"),
        ({"field": ["reward"], "op": "=", "value": 1}, "0.field = .*valid string"),
        ({"field": "text", "op": "has", "value": "\ud800"}, "`where`"),  # half of a surrogate pair
        ({"field": "reward"}, "0.op = .*Field required"),
        ("reward", "0 = 'reward'"),
    ],
)
def test_a_condition_that_is_none_is_refused_with_what_is_known(run, condition, said):
    with pytest.raises(UserError, match=said):
        run.index.rollouts(Selection(json.dumps([condition])))


@pytest.mark.parametrize("where", ["{", "5", "[" * 100_000, "[" * 500 + "]" * 500, json.dumps([{}] * 65)])
def test_a_where_that_is_no_list_of_conditions_is_refused(run, where):
    with pytest.raises(UserError, match="`where`"):
        run.index.rollouts(Selection(where))


@pytest.mark.parametrize("ask", ["rollouts", "groups"])
def test_an_unknown_order_is_refused(run, ask):
    with pytest.raises(UserError, match=r"Known: .*step"):
        getattr(run.index, ask)(Selection(sort="-rewrad, (SELECT 1)"))


@pytest.mark.parametrize(
    "key", ["", "train", "train:1", "train:1:x", "train:9:9", "train:²:1", "../x:1:2", "train:1:2:3"]
)
def test_an_unknown_key_is_missing(run, key):
    with pytest.raises(Missing, match="no rollout"):
        run.index.place(key)


def test_evaluations_tasks_and_groups_are_apart(tmp_path):
    run = indexed(make_run(tmp_path / "run"))
    assert run.index.rollouts(Selection())["total"] == 8
    answer = run.index.rollouts(Selection(file="held_out/final_greedy"))
    assert [(row["key"], row["step"], row["environment"]) for row in answer["rows"]] == [
        ("held_out/final_greedy:3:0", 3, "reverse-text")
    ]
    held_out = [{"name": name, "num": 1} for name in ("start_greedy", "final_greedy")]
    assert run.index.files() == {"train": {"steps": [0, 1]}, "held_out": held_out}
    with pytest.raises(Missing, match=r"Known: train, held_out/final_greedy, held_out/start_greedy"):
        run.index.rollouts(Selection(file="held_out/../../x"))
    keys = [row["key"] for row in run.index.task("reverse-text/test/a")["rows"]]
    assert keys == ["held_out/start_greedy:0:0", "held_out/final_greedy:3:0"]
    answer = run.index.group("1/train/a", "train")
    assert [row["reward"] for row in answer["rows"]] == [0.0, 1.0]
    with pytest.raises(Missing, match="no group"):
        run.index.group("7/train/a", "train")
    assert {group["prompt"] for group in run.index.groups(Selection())["groups"]} == {"a question"}


def test_two_evaluations_are_compared_task_by_task(tmp_path):
    left = [record_of(task, reward=reward) for task, reward in zip("xyzw", (0.0, 1.0, 0.5, 1.0), strict=True)]
    right = [record_of(task, reward=reward) for task, reward in zip("xyzv", (1.0, 0.0, 0.5, 0.5), strict=True)]
    write_held_out(tmp_path, "a_greedy", left)
    write_held_out(tmp_path, "b_greedy", [*right, record_of("w", failure="timeout")])
    run = indexed(tmp_path)
    answer = pair_up(run.index.evaluation("a_greedy"), run.index.evaluation("b_greedy"))
    assert (answer["better"], answer["worse"], answer["same"]) == (1, 1, 1)
    assert [pair["task"] for pair in answer["pairs"]] == ["x", "y", "z", "w", "v"]
    assert answer["pairs"][4]["left"] is None
    assert answer["pairs"][3]["right"]["drop"] == "timeout"
