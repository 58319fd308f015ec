import assert from "node:assert/strict";
import { test } from "node:test";
import { messagePairs, wordChanges } from "../src/compare/diff.ts";
import { type Condition, type Rollout, type Row, sampledCount, tokenCount } from "../src/data/types.ts";
import { groupsOf, selectRows, sortBy, valueOf } from "../src/data/where.ts";
import { number, shortened, signed } from "../src/format.ts";
import { link, parseHash } from "../src/route.ts";

const row = (line: number, more: object = {}): Row =>
  ({ key: `train:1:${line}`, step: 1, line, task: "train/a", group: "1/train/a", reward: line, advantage: 0, drop: "", stop: "done", excerpt: "", ...more }) as Row;
const rows = [row(0), row(1), row(2, { reward: null, drop: "timeout" }), row(3, { key: "held_out/final:0:3" })];
const pick = (where: Condition[], sort = "") => selectRows(rows, { where, sort, file: "train" }, (each) => `text ${each.line}`).map(({ line }) => line);

test("conditions hold as they do on the server", () => {
  assert.deepEqual(pick([]), [0, 1, 2]);
  assert.deepEqual(pick([{ field: "reward", op: ">", value: 0 }]), [1]);
  assert.deepEqual(pick([{ field: "drop", op: "!=", value: "" }]), [2]);
  assert.deepEqual(pick([{ field: "text", op: "has", value: "TEXT 1" }]), [1]);
  assert.throws(() => pick([{ field: "nonsense", op: "=", value: 1 }]), /no field "nonsense"/);
});

test("what has no value is sorted last either way", () => {
  assert.deepEqual(pick([], "reward"), [0, 1, 2]);
  assert.deepEqual(pick([], "-reward"), [1, 0, 2]);
  assert.deepEqual(sortBy(rows, "metric.none", valueOf).length, 4);
});

test("groups have mean and spread over the known rewards", () => {
  const [group] = groupsOf(rows.slice(0, 3));
  assert.deepEqual([group?.num, group?.dropped, group?.mean, group?.std], [3, 1, 0.5, 0.5]);
});

test("a change of words is found", () => {
  assert.deepEqual(wordChanges("the red fox", "the blue fox").filter(({ kind }) => kind !== "same"), [
    { kind: "removed", text: "red" },
    { kind: "added", text: "blue" },
  ]);
  assert.deepEqual(wordChanges("", ""), []);
});

test("messages of other roles are not compared with one another", () => {
  const of = (...roles: string[]) => ({ messages: roles.map((role) => ({ role, content: role })) }) as Rollout;
  const pairs = messagePairs(of("user", "assistant"), of("user", "tool", "assistant"));
  assert.deepEqual(pairs.map(({ role, left, right }) => [role, left, right]), [
    ["user", "user", "user"], ["assistant", "assistant", null], ["tool", null, "tool"], ["assistant", null, "assistant"],
  ]);
});

test("an address says what it is read as", () => {
  const hash = link("group", { run: "a", group: "4/train/q?&#=é", color: null });
  const { page, params } = parseHash(hash);
  assert.equal(page, "group");
  assert.equal(params.get("group"), "4/train/q?&#=é");
  assert.equal(parseHash("#/nonsense").page, "curves");
});

test("numbers are short", () => {
  assert.deepEqual([0.123456, 12345, 0, null, 1e-7].map((value) => number(value)), ["0.1235", "12,345", "0", "–", "1.00e−7"]);
  assert.deepEqual([0.5, -0.5].map((value) => signed(value)), ["+0.5", "−0.5"]);
});

test("a number of tokens that is not known is none", () => {
  const rollout = (more: object): Rollout => ({ tokens: null, ...more }) as Rollout;
  const tokens = { ids: [5, 6, 7], mask: [0, 1, 1] };
  const found = [{}, { num_tokens: 0, num_sampled: 0 }, { num_tokens: 3 }, { num_tokens: 3, num_sampled: 0 }, { tokens }].map((more) => rollout(more));
  assert.deepEqual(found.map(tokenCount), [null, null, 3, 3, 3]);
  assert.deepEqual(found.map(sampledCount), [null, null, null, 0, 2]);
});

test("a long name is shortened in its middle", () => {
  assert.equal(shortened("reverse_text"), "reverse_text");
  const name = `${"a".repeat(40)}_${"b".repeat(40)}_seed7`;
  assert.match(shortened(name), /^a+…b+_seed7$/);
  assert.equal(shortened(name).length, 32);
});
