import assert from "node:assert/strict";
import { test } from "node:test";
import { defaultPair } from "../src/compare/default_pair.ts";

const of = (run: string, ...names: string[]): string[] => names.map((name) => `${run}/${name}`);
const whole = (run: string): string[] => of(run, "base_greedy", "base_sampled", "step_5_greedy", "final_greedy", "final_sampled");

test("one run is compared with what it began as", () => {
  assert.deepEqual(defaultPair(whole("a")), ["a/base_greedy", "a/final_greedy"]);
  assert.deepEqual(defaultPair(of("a", "final_greedy", "start_greedy", "base_sampled")), ["a/start_greedy", "a/final_greedy"]);
});

test("two runs are compared at their ends, in their order", () => {
  assert.deepEqual(defaultPair([...whole("new"), ...whole("and_old")]), ["new/final_greedy", "and_old/final_greedy"]);
  const sampled = of("b", "base_sampled", "final_sampled");
  assert.deepEqual(defaultPair([...whole("a"), ...sampled]), ["a/final_sampled", "b/final_sampled"]);
});

test("runs of different tasks are not compared", () => {
  const environments = { a: ["wordle"], b: ["reverse-text"], c: ["reverse-text", "wordle"] };
  assert.deepEqual(defaultPair([...whole("a"), ...whole("b")], environments), ["a/base_greedy", "a/final_greedy"]);
  assert.deepEqual(defaultPair([...whole("a"), ...whole("b"), ...whole("c")], environments), ["a/final_greedy", "c/final_greedy"]);
});

test("beside a run that is not done, before and after of the other are compared", () => {
  assert.deepEqual(defaultPair([...of("live", "base_greedy"), ...whole("b")]), ["b/base_greedy", "b/final_greedy"]);
});

test("evaluations of their own are compared in the order of the runs", () => {
  assert.deepEqual(defaultPair([...of("a", "eval_greedy", "eval_sampled"), ...of("b", "eval_greedy")]), ["a/eval_greedy", "b/eval_greedy"]);
});

test("what has nothing in common is still a pair", () => {
  assert.deepEqual(defaultPair(of("a", "base_greedy", "final_sampled")), ["a/base_greedy", "a/final_sampled"]);
});
