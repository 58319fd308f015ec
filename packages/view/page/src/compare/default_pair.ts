/** Which two evaluations are compared before any is chosen. */

const STAGES = ["base", "start", "step", "final"]; // as they follow one another in a run

const runOf = (place: string): string => place.split("/")[0] ?? "";
const nameOf = (place: string): string => place.replace(/^[^/]*\//, "");
/** What two evaluations have in common that can be compared: without the stage, the way of decoding. */
const kindOf = (place: string): string => nameOf(place).replace(/^(step_\d+|start|base|final)_?/, "");
const stageOf = (place: string): number => STAGES.indexOf(nameOf(place).split("_")[0] ?? "");

type Environments = Record<string, string[]>;

/** Whether two runs have an environment in common, as far as is known. */
function shareTasks(one: string[] = [], other: string[] = []): boolean {
  return !one.length || !other.length || one.some((each) => other.includes(each));
}

/** The first of some evaluations that has one of its kind in another run of the same tasks, and that one. */
function inTwoRuns(places: string[], environments: Environments): [string, string] | undefined {
  for (const place of places) {
    const run = runOf(place);
    const alike = places.filter((each) => runOf(each) !== run && kindOf(each) === kindOf(place));
    const other = alike.find((each) => shareTasks(environments[run], environments[runOf(each)]));
    if (other) return [place, other];
  }
  return undefined;
}

/** The first and the last evaluation of a kind in the first run that has two. */
function inOneRun(places: string[]): [string, string] | undefined {
  for (const place of places) {
    const last = places.filter((each) => runOf(each) === runOf(place) && kindOf(each) === kindOf(place)).at(-1);
    if (last && last !== place) return [place, last];
  }
  return undefined;
}

/**
 * Which two of the evaluations, each RUN/NAME; `environments` are those of each run. Of several runs it is asked which
 * one has learned more: their final ones, in the order of the runs. Of one run it is asked what it has learned: before
 * and after.
 */
export function defaultPair(places: string[], environments: Environments = {}): [string, string] {
  const byStage = [...places].sort((one, two) => stageOf(one) - stageOf(two));
  const final = byStage.filter((place) => stageOf(place) === STAGES.length - 1);
  return inTwoRuns(final, environments) ?? inOneRun(byStage) ?? inTwoRuns(byStage, environments) ?? [byStage[0] ?? "", byStage[1] ?? ""];
}
