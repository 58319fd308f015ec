/** Which lines a chart of a metric has: runs, or the mean and band of the seeds of an experiment. */
import { plural } from "../format.ts";
import type { Num, Points, Reference, Run } from "../data/types.ts";
import { align, band, isSparse, positive, smooth } from "./smooth.ts";

export interface RunSeries {
  run: Run;
  colour: number;
  series: Record<string, Points>;
  reference: Reference | null;
}

export type Look = "line" | "raw" | "edge" | "reference" | "reference-edge";

export interface Line {
  label: string;
  colour: number;
  look: Look;
  values: Num[];
  /** What is to be known about it, on hover. */
  about?: string;
}

export interface ChartLines {
  steps: number[];
  lines: Line[];
  /** Pairs of lines, high and low, between which the chart is filled. */
  fills: [number, number][];
  /** Values that a logarithmic axis cannot show. */
  leftOut: number;
}

export interface Settings {
  smoothing: number;
  log: boolean;
  seeds: boolean;
}

interface Experiment {
  label: string;
  colour: number;
  members: RunSeries[];
}

/** Runs of one configuration are the seeds of one experiment. */
export function experiments(runs: RunSeries[], together: boolean): Experiment[] {
  const found = new Map<string, RunSeries[]>();
  for (const run of runs) {
    const key = together && run.run.config_key ? `key ${run.run.config_key}` : `run ${run.run.id}`;
    found.set(key, [...(found.get(key) ?? []), run]);
  }
  return [...found.values()].map((members) => {
    const first = members[0] as RunSeries;
    const label = members.length > 1 ? `${experimentName(first.run)}, mean of ${members.length} seeds` : first.run.name;
    return { label, colour: first.colour, members };
  });
}

/** Runs that are named by their seed alone are known by the directory around them. */
function experimentName({ name, path }: Run): string {
  const around = path.split("/").at(-2);
  return /^seed[_-]?\d+$/.test(name) && around ? around : name;
}

export function chartLines(name: string, runs: RunSeries[], settings: Settings): ChartLines {
  const holding = runs.filter((run) => run.series[name]?.length);
  const groups = experiments(holding, settings.seeds);
  const recipe = holding.map((run) => run.reference).find((each) => each?.curves[name]);
  const reference = recipe?.curves[name];
  const referencePoints = reference
    ? [reference.low, reference.mid, reference.high].map((values) => values.map((v, i): [number, Num] => [reference.steps[i] ?? i, v]))
    : [];
  const all = [...groups.flatMap(({ members }) => members.map((run) => run.series[name] as Points)), ...referencePoints];
  const { steps, columns } = align(all);
  const chart: ChartLines = { steps, lines: [], fills: [], leftOut: 0 };
  if (recipe && reference) addReference(chart, columns.splice(-3), settings, recipe);
  for (const group of groups) addExperiment(chart, group, columns.splice(0, group.members.length), settings);
  return chart;
}

/** The last value of a line. */
export const lastOf = (line: Line): Num => line.values.filter((value) => value !== null).at(-1) ?? null;

/** Where the last step of the runs is; a recipe's curve may go further. */
export function lastPlace(chart: ChartLines): number {
  const own = chart.lines.filter((line) => line.look === "line");
  return Math.max(...chart.steps.map((_, i) => (own.some((line) => line.values[i] !== null) ? i : -1)));
}

/** The place of the value that the read-out shows: the cursor's, else that of the last value up to the runs' last step;
 * -1 if there is none. */
export function shownPlace(chart: ChartLines, line: Line, index: number | null): number {
  if (index !== null) return index;
  const last = lastPlace(chart);
  let place = -1;
  line.values.forEach((value, i) => {
    if (value !== null && i <= last) place = i;
  });
  return place;
}

function add(chart: ChartLines, line: Line, log: boolean): number {
  const values = log ? positive(line.values) : line.values;
  if (line.look === "line")
    chart.leftOut += line.values.filter((value, i) => value !== null && values[i] === null).length;
  return chart.lines.push({ ...line, values }) - 1;
}

function addReference(chart: ChartLines, columns: Num[][], { log }: Settings, { recipe, source, differs = [] }: Reference): void {
  const label = differs.length ? `recipe ${recipe}, ${plural(differs.length, "setting")} otherwise` : `recipe ${recipe}`;
  const about = [`recorded: ${source}`, ...differs].join("\n");
  const [low = [], mid = [], high = []] = columns;
  const line = (name: string, look: Look, values: Num[]): number => add(chart, { label: name, colour: -1, look, values, about }, log);
  const top = line("reference, highest", "reference-edge", high);
  const bottom = line("reference, lowest", "reference-edge", low);
  chart.fills.push([top, bottom]);
  line(label, "reference", mid);
}

function addExperiment(chart: ChartLines, { label, colour, members }: Experiment, columns: Num[][], settings: Settings): void {
  const { smoothing, log } = settings;
  const line = (name: string, look: Look, values: Num[]): number => add(chart, { label: name, colour, look, values }, log);
  if (members.length === 1) {
    const raw = columns[0] ?? [];
    if (smoothing > 0 && !isSparse(raw)) line(label, "raw", raw);
    line(label, "line", smooth(raw, smoothing));
    return;
  }
  const { low, mean, high } = band(columns);
  if (smoothing > 0 && !isSparse(mean)) line(label, "raw", mean);
  const top = line("highest seed", "edge", smooth(high, smoothing));
  const bottom = line("lowest seed", "edge", smooth(low, smoothing));
  chart.fills.push([top, bottom]);
  line(label, "line", smooth(mean, smoothing));
}
