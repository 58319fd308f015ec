import assert from "node:assert/strict";
import { test } from "node:test";
import { hasItem, parseQuery, toggleItem, writeItem } from "../src/query/parse.ts";

const where = (text: string) => parseQuery(text).where;
const error = (text: string) => parseQuery(text).error;

test("the query of the documentation is understood", () => {
  assert.deepEqual(where('reward>0.5 step:3..7 drop:timeout task:q8t5 env:wordle metric.exact=1 zero "some text"'), [
    { field: "reward", op: ">", value: 0.5 },
    { field: "step", op: ">=", value: 3 },
    { field: "step", op: "<=", value: 7 },
    { field: "drop", op: "=", value: "timeout" },
    { field: "task", op: "has", value: "q8t5" },
    { field: "environment", op: "=", value: "wordle" },
    { field: "metric.exact", op: "=", value: 1 },
    { field: "zero_signal", op: "=", value: 1 },
    { field: "text", op: "has", value: "some text" },
  ]);
});

test("any and none of the drop reasons", () => {
  assert.deepEqual(where("drop:any"), [{ field: "drop", op: "!=", value: "" }]);
  assert.deepEqual(where("drop:none"), [{ field: "drop", op: "=", value: "" }]);
  assert.deepEqual(where("drop/timeout"), [{ field: "drop", op: "=", value: "timeout" }]);
});

test("open ranges, spaces and quoted values", () => {
  assert.deepEqual(where("step:3.. reward >= -0.5"), [{ field: "step", op: ">=", value: 3 }, { field: "reward", op: ">=", value: -0.5 }]);
  assert.deepEqual(where('task:"a b"'), [{ field: "task", op: "has", value: "a b" }]);
  assert.deepEqual(where('"say \\"hi\\""'), [{ field: "text", op: "has", value: 'say "hi"' }]);
  assert.deepEqual(where("  "), []);
});

test("a mistake is said in words", () => {
  assert.match(error("rewrd>3"), /no field rewrd. Did you mean reward\?/);
  assert.match(error("frobnicate:3"), /no field frobnicate. Known are step/);
  assert.match(error("reward>high"), /reward is a number, and "high" is none/);
  assert.match(error("hello"), /put it in quotation marks/);
  assert.match(error('"open'), /never closed/);
  assert.match(error("reward>"), /Nothing stands after/);
  assert.match(error("task>3"), /holds words/);
  assert.match(error("step:1..2..3"), /A range is written/);
  assert.match(error("metric.=1"), /name is missing/);
});

test("an item is put in and taken out again", () => {
  assert.equal(toggleItem("reward>0.5", "drop:timeout"), "reward>0.5 drop:timeout");
  assert.equal(toggleItem("reward>0.5 drop:timeout", "drop:timeout"), "reward>0.5");
  assert.equal(hasItem('"a drop:x" step:3', "drop:x"), false);
  const item = writeItem("environment", 'odd "name"');
  assert.deepEqual(where(item), [{ field: "environment", op: "=", value: 'odd "name"' }]);
});
