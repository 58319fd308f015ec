import assert from "node:assert/strict";
import { test } from "node:test";
import type { Rollout, Segment } from "../src/data/types.ts";
import { turnsOf } from "../src/rollouts/outline.tsx";

const text = ["ask", "think", "<tool>search(", "'x')</tool>", "found", "end", '{"name": "open", "arguments": {}}'];
const segment = (begin: number, kind: Segment["kind"], role: string, parts: Segment["parts"] = []): Segment => ({ begin, end: begin + 1, kind, role, parts });
const rollout = (segments: Segment[]): Rollout => ({ segments, tokens: { text }, turn_rewards: [0, 1] }) as unknown as Rollout;

test("the outline has the parts of each reply, what was read after it, and its reward", () => {
  const segments = [
    segment(0, "prompt", "user"),
    segment(1, "reply", "assistant", [{ begin: 1, end: 2, kind: "thought" }, { begin: 2, end: 4, kind: "tool_call" }]),
    segment(4, "observation", "user"),
    segment(5, "observation", "assistant"), // what the chat template writes before the reply
    segment(5, "reply", "assistant"),
  ];
  assert.deepEqual(turnsOf(rollout(segments)), [
    { events: [{ label: "thought", at: 1 }, { label: "search('x')", at: 2 }, { label: "result", at: 4 }], reward: 0 },
    { events: [{ label: "reply", at: 5 }], reward: 1 },
  ]);
});

test("a call that is spelt as JSON goes by the name of its tool", () => {
  const [turn] = turnsOf(rollout([segment(6, "reply", "assistant", [{ begin: 6, end: 7, kind: "tool_call" }])]));
  assert.deepEqual(turn?.events, [{ label: "open(…)", at: 6 }]);
});
