/** What all pages share: the runs, the registry, and how much of each run there is; asked again every two seconds. */
import { computed, signal } from "@preact/signals";
import * as api from "./api.ts";
import type { Metric, Registry, Run, RunCounters } from "./types.ts";

const POLL_MS = 2000;
const NO_REGISTRY: Registry = { metrics: [], groups: {}, panels: [] };

export type Connection = "loading" | "live" | "lost";

export const runs = signal<Run[] | null>(null);
export const registry = signal<Registry>(NO_REGISTRY);
export const counters = signal<Record<string, RunCounters>>({});
export const connection = signal<Connection>("loading");
export const problem = signal("");
export const version = signal("");

export const indexing = computed(() => Object.values(counters.value).filter((run) => run.indexing !== null));

export function runOf(id: string): Run | undefined {
  return runs.value?.find((run) => run.id === id);
}

/** A number that grows when the run has more of that; reading it in a component makes the component follow. */
export function counter(run: string, what: "metrics" | "rollouts" | "held_out" | "monitors"): number {
  return counters.value[run]?.[what] ?? 0;
}

/** Whether a run is an evaluation alone, which has no curves and will have none. */
function isEvaluation(run: Run): boolean {
  if (run.step !== null || counter(run.id, "metrics")) return false;
  return run.command === "eval" || (!run.live && counter(run.id, "held_out") > 0);
}

/** The runs that have curves or will have some. */
export const trainings = computed(() => (runs.value ?? []).filter((run) => !isEvaluation(run)));

/** The registry's line for a metric: its own, or that of the longest pattern such as `env/<name>`. */
export function meaningOf(name: string): Metric | undefined {
  const exact = registry.value.metrics.find((metric) => metric.name === name);
  if (exact) return exact;
  const prefix = (metric: Metric): string => metric.name.slice(0, metric.name.indexOf("<"));
  return registry.value.metrics
    .filter((metric) => metric.name.includes("<") && name.startsWith(prefix(metric)))
    .sort((a, b) => prefix(b).length - prefix(a).length)[0];
}

export async function start(): Promise<void> {
  try {
    // How much there is comes with the first answers: otherwise every page would take that for growth, and ask twice.
    const [list, about, state] = await Promise.all([api.runs(), api.registry(), api.state()]);
    [runs.value, registry.value, version.value] = [list, about, state.version];
    counters.value = Object.fromEntries(state.runs.map((run) => [run.id, run]));
    connection.value = "live";
  } catch (error) {
    problem.value = String((error as Error).message);
    connection.value = "lost";
  }
  setTimeout(() => void poll(), POLL_MS);
}

async function poll(): Promise<void> {
  for (;;) {
    try {
      await look();
      problem.value = "";
      connection.value = "live";
    } catch (error) {
      problem.value = String((error as Error).message);
      connection.value = "lost";
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

async function look(): Promise<void> {
  const state = await api.state();
  version.value = state.version;
  const known = counters.value;
  const now = Object.fromEntries(state.runs.map((run) => [run.id, run]));
  const changed = JSON.stringify(now) !== JSON.stringify(known);
  // Steps and the "live" mark stand in the list of runs; a run that stops growing must lose its mark too.
  if (changed || runs.value === null || runs.value.some((run) => run.live)) {
    const list = await api.runs();
    if (JSON.stringify(list) !== JSON.stringify(runs.value)) runs.value = list;
  }
  if (!registry.value.metrics.length) registry.value = await api.registry();
  if (changed) counters.value = now;
}
