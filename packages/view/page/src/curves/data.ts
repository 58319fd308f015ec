/** The metrics of the chosen runs, fetched once and then only what is new. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import * as api from "../data/api.ts";
import { counter } from "../data/store.ts";
import type { Alarm, Points, Reference } from "../data/types.ts";
import { merge } from "./merge.ts";

export interface RunMetrics {
  series: Record<string, Points>;
  lastStep: number | null;
}

export const metrics = signal<Record<string, RunMetrics>>({});
export const alarms = signal<Record<string, Alarm[]>>({});
export const references = signal<Record<string, Reference | null>>({});
export const metricsProblem = signal("");

async function fetchMetrics(run: string): Promise<void> {
  const known = metrics.peek()[run];
  try {
    const answer = await api.metrics(run, known?.lastStep ?? null);
    const series = known ? merge(known.series, answer.series) : answer.series;
    metrics.value = { ...metrics.peek(), [run]: { series, lastStep: answer.last_step ?? known?.lastStep ?? null } };
    metricsProblem.value = "";
  } catch (error) {
    metricsProblem.value = (error as Error).message;
  }
}

async function fetchAlarms(run: string): Promise<void> {
  try {
    const { alarms: list } = await api.monitors(run);
    alarms.value = { ...alarms.peek(), [run]: list };
  } catch (error) {
    metricsProblem.value = (error as Error).message;
  }
}

async function fetchReference(run: string): Promise<void> {
  if (run in references.peek()) return;
  references.value = { ...references.peek(), [run]: null };
  try {
    references.value = { ...references.peek(), [run]: await api.reference(run) };
  } catch (error) {
    metricsProblem.value = (error as Error).message;
  }
}

/** Keep the metrics, alarms and reference of these runs up to date while the component is shown. */
export function useMetrics(runs: string[]): void {
  const key = runs.map((run) => `${run}:${counter(run, "metrics")}`).join();
  const alarmKey = runs.map((run) => `${run}:${counter(run, "monitors")}`).join();
  useEffect(() => runs.forEach((run) => void fetchMetrics(run)), [key]);
  useEffect(() => runs.forEach((run) => void fetchAlarms(run)), [alarmKey]);
  useEffect(() => runs.forEach((run) => void fetchReference(run)), [runs.join()]);
}
