import assert from "node:assert/strict";
import { test } from "node:test";
import { chartLines, lastPlace, type RunSeries, shownPlace } from "../src/curves/lines.ts";
import { merge } from "../src/curves/merge.ts";
import { padded, possible } from "../src/curves/range.ts";
import { align, band, smooth } from "../src/curves/smooth.ts";
import type { Metric, Run } from "../src/data/types.ts";

const run = (id: string, key: string, points: [number, number][], reference: RunSeries["reference"] = null): RunSeries => ({
  run: { id, name: id, path: `runs/${id}`, config_key: key } as Run,
  colour: 0,
  series: { "reward/mean": points },
  reference,
});
const plain = { smoothing: 0, log: false, seeds: true };

test("series are put on the union of their steps", () => {
  assert.deepEqual(align([[[0, 1], [2, 3]], [[1, 5], [2, null]]]), { steps: [0, 1, 2], columns: [[1, null, 3], [null, 5, null]] });
});

const many = [1, 3, ...Array.from({ length: 20 }, () => 3)];

test("the smoothed line starts at the first value and keeps gaps", () => {
  const flat = Array.from({ length: 20 }, (_, i) => (i === 3 ? null : 4));
  assert.deepEqual(smooth(flat, 0.9).map((value) => value && Math.round(value * 1e9) / 1e9), flat);
  assert.deepEqual(smooth(many, 0.5).slice(0, 2), [1, 7 / 3]); // (0.25 * 1 + 0.5 * 3) / 0.75
  assert.deepEqual(smooth(many, 0), many);
});

test("a few points are results, and are not smoothed", () => {
  assert.deepEqual(smooth([1, 3], 0.5), [1, 3]);
  const chart = chartLines("reward/mean", [run("a", "k", [[0, 1], [1, 3]])], { ...plain, smoothing: 0.5 });
  assert.deepEqual(chart.lines.map(({ look }) => look), ["line"]);
});

test("the band is over the seeds that have a value", () => {
  assert.deepEqual(band([[1, null], [3, 5]]), { low: [1, 5], mean: [2, 5], high: [3, 5] });
});

test("seeds of one experiment become a mean with a band", () => {
  const chart = chartLines("reward/mean", [run("a", "k", [[0, 1]]), run("b", "k", [[0, 3]])], plain);
  assert.deepEqual(chart.lines.map(({ look, values }) => [look, values[0]]), [["edge", 3], ["edge", 1], ["line", 2]]);
  assert.deepEqual(chart.fills, [[0, 1]]);
  const apart = chartLines("reward/mean", [run("a", "k", [[0, 1]]), run("b", "k", [[0, 3]])], { ...plain, seeds: false });
  assert.deepEqual(apart.lines.map(({ look }) => look), ["line", "line"]);
});

test("smoothing leaves the raw line visible", () => {
  const chart = chartLines("reward/mean", [run("a", "k", many.map((value, step) => [step, value]))], { ...plain, smoothing: 0.5 });
  assert.deepEqual(chart.lines.map(({ look, values }) => [look, values[1]]), [["raw", 3], ["line", 7 / 3]]);
});

test("a log scale leaves out what it cannot show, and says how much", () => {
  const chart = chartLines("reward/mean", [run("a", "k", [[0, 0], [1, 3], [2, -1]])], { ...plain, log: true });
  assert.deepEqual(chart.lines[0]?.values, [null, 3, null]);
  assert.equal(chart.leftOut, 2);
});

test("the reference stands behind the runs on its own steps", () => {
  const curves = { "reward/mean": { steps: [0, 5], low: [0, 1], mid: [1, 2], high: [2, 3] } };
  const chart = chartLines("reward/mean", [run("a", "k", [[1, 9]], { recipe: "r", source: "s", curves })], plain);
  assert.deepEqual(chart.steps, [0, 1, 5]);
  assert.deepEqual(chart.lines.map(({ look, values }) => [look, values]), [
    ["reference-edge", [2, null, 3]],
    ["reference-edge", [0, null, 1]],
    ["reference", [1, null, 2]],
    ["line", [null, 9, null]],
  ]);
});

test("a recipe's value is told of the step that is shown, and not of its own last one", () => {
  const curves = { "reward/mean": { steps: [0, 4, 9], low: [0, 0, 0], mid: [1, 2, 3], high: [4, 4, 4] } };
  const chart = chartLines("reward/mean", [run("a", "k", [[0, 7], [4, 8], [5, 9]], { recipe: "r", source: "s", curves })], plain);
  const told = (index: number | null) =>
    ["reference", "line"].map((look) => {
      const line = chart.lines.find((each) => each.look === look)!;
      const place = shownPlace(chart, line, index);
      return [chart.steps[place], line.values[place]];
    });
  assert.equal(chart.steps[lastPlace(chart)], 5);
  assert.deepEqual(told(null), [[4, 2], [5, 9]]);
  assert.deepEqual(told(0), [[0, 1], [0, 7]]);
  assert.deepEqual(told(3), [[9, 3], [9, null]]);
});

test("a run that has ended earlier shows its last value with its own step, and none at a later one", () => {
  const chart = chartLines("reward/mean", [run("a", "k", [[0, 7], [9, 8]]), run("b", "l", [[0, 1], [4, 2]])], plain);
  const places = [null, 2].map((index) => chart.lines.map((line) => shownPlace(chart, line, index)));
  assert.deepEqual(places, [[2, 1], [2, 2]]);
  assert.equal(chart.lines[1]!.values[2], null);
});

test("an axis reaches no further than the metric can", () => {
  const metric = (unit: string, least: number | null = null, most: number | null = null) => ({ unit, least, most }) as Metric;
  const range = (about: Metric | undefined, values: number[]) => padded(possible(about, values), Math.min(...values), Math.max(...values));
  assert.deepEqual(range(metric("share", 0, 1), [0, 1]), [0, 1]);
  assert.deepEqual(range(metric("share", 0, 1), [1, 1]), [0.9, 1]);
  assert.deepEqual(range(metric("s", 0), [1, 101]), [0, 109]);
  assert.deepEqual(range(metric("reward"), [0, 1]), [0, 1]);
  assert.deepEqual(range(metric("reward"), [-1, 1]), [-1.16, 1.16]);
  assert.deepEqual(range(undefined, [0, 2]), [0, 2.16]);
  assert.deepEqual(range(metric("nats"), [0, 1]), [0, 1.08]);
  assert.deepEqual(range(metric("share", 0, 1), [0.5, 2])[1], 2, "a value that should not be is shown");
  // A reference's band may go below what can be: the axis does not follow it.
  assert.deepEqual(padded(possible(metric("share", 0, 1), [0.1]), -0.3, 1.2), [0, 1]);
});

test("new points replace those of their steps and later", () => {
  assert.deepEqual(merge({ a: [[0, 1], [1, 2], [2, 3]], b: [[0, 9]] }, { a: [[1, 5]] }), { a: [[0, 1], [1, 5]], b: [[0, 9]] });
});
