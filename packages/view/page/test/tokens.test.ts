import assert from "node:assert/strict";
import { test } from "node:test";
import type { Rollout } from "../src/data/types.ts";
import { sharedSegments } from "../src/groups/order.ts";
import { partsOf } from "../src/tokens/parts.ts";
import { colourOf, scaleOf, show, valueAt } from "../src/tokens/scale.ts";

const rollout = (more: object = {}): Rollout =>
  ({
    advantages: [0.5, -1],
    segments: [
      { begin: 0, end: 1, kind: "prompt", role: "user", parts: [] },
      { begin: 1, end: 3, kind: "reply", role: "assistant", parts: [] },
      { begin: 3, end: 4, kind: "observation", role: "tool", parts: [] },
      { begin: 4, end: 5, kind: "reply", role: "assistant", parts: [] },
    ],
    tokens: {
      ids: [1, 2, 3, 4, 5], text: ["a", "b", "c", "d", "e"], mask: [0, 1, 1, 0, 1], turn: [-1, 0, 0, -1, 1],
      logprob: [0, -0.5, -2, 0, -0.1], version: [-1, 3, 3, -1, 4], advantage: null, entropy: null, log_ratio: [null, 0, 0.1, null, -0.2],
    },
    ...more,
  }) as unknown as Rollout;

test("only sampled tokens have a value, and a turn's advantage counts where the trainer's is missing", () => {
  assert.deepEqual([0, 1, 2, 3, 4].map((t) => valueAt(rollout(), "advantage", t)), [null, 0.5, 0.5, null, -1]);
  assert.deepEqual([0, 1].map((t) => valueAt(rollout(), "mask", t)), [0, 1]);
});

test("colours have a sign, and a full one at the top", () => {
  const scale = scaleOf([rollout()], "advantage");
  assert.equal(scale.top, 1);
  assert.deepEqual([0.5, -1, 0, null].map((value) => colourOf(scale, value)), ["d3", "d-6", "", ""]);
  const versions = scaleOf([rollout()], "version");
  assert.deepEqual([3, 4].map((value) => colourOf(versions, value)), ["h0", "h1"]);
});

test("the ratio is coloured by its logarithm and read as a ratio", () => {
  const scale = scaleOf([rollout()], "ratio");
  assert.equal(scale.top, 0.2);
  assert.equal(colourOf(scale, -0.2), "d-6");
  assert.equal(show("ratio", 0), "1");
});

test("a scale without values says why", () => {
  assert.match(scaleOf([rollout()], "entropy").silence, /No entropy was recorded/);
  assert.match(scaleOf([rollout({ advantages: [0, 0] })], "advantage").silence, /All advantages are 0/);
});

test("the shared beginning ends before the first reply or the first difference", () => {
  assert.equal(sharedSegments([rollout(), rollout()]), 1);
  const other = rollout();
  other.tokens = { ...other.tokens!, ids: [9, 2, 3, 4, 5] };
  assert.equal(sharedSegments([rollout(), other]), 0);
});

test("text between the marked parts of a reply is a part too", () => {
  const segment = { begin: 1, end: 9, kind: "reply", role: "assistant", parts: [{ begin: 2, end: 4, kind: "thought" }] } as const;
  assert.deepEqual(partsOf({ ...segment, parts: [...segment.parts] }).map(({ begin, end, kind }) => [begin, end, kind]), [
    [1, 2, "text"], [2, 4, "thought"], [4, 9, "text"],
  ]);
});
