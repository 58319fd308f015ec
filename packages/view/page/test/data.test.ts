import assert from "node:assert/strict";
import { test } from "node:test";
import { messagePairs, wordChanges } from "../src/compare/diff.ts";
import type { Rollout } from "../src/data/types.ts";
import { number, shortened, signed } from "../src/format.ts";
import { link, parseHash } from "../src/route.ts";

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

test("a long name is shortened in its middle", () => {
  assert.equal(shortened("reverse_text"), "reverse_text");
  const name = `${"a".repeat(40)}_${"b".repeat(40)}_seed7`;
  assert.match(shortened(name), /^a+…b+_seed7$/);
  assert.equal(shortened(name).length, 32);
});
