/** Curves as they are drawn: smoothed, averaged over seeds, put on common steps. */
import type { Num, Points } from "../data/types.ts";

const FEW = 12;

export interface Aligned {
  steps: number[];
  columns: Num[][];
}

/** The series on the union of their steps; null where a series has no value. */
export function align(series: Points[]): Aligned {
  const steps = [...new Set(series.flatMap((points) => points.map(([step]) => step)))].sort((a, b) => a - b);
  const columns = series.map((points) => {
    const values = new Map(points);
    return steps.map((step) => values.get(step) ?? null);
  });
  return { steps, columns };
}

/**
 * An exponential moving average with weight `w` on the past, freed of the bias towards its start:
 * s_t = w s_{t-1} + (1 - w) x_t, and s_t / (1 - w^t) is shown. Gaps stay gaps.
 */
export function smooth(values: Num[], weight: number): Num[] {
  if (weight <= 0 || isSparse(values)) return values;
  let [sum, seen] = [0, 0];
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    seen += 1;
    return sum / (1 - weight ** seen);
  });
}

/** A few points, as those of evaluations, are a result each: an average over them would hide where the run stands. */
export const isSparse = (values: Num[]): boolean => values.filter((value) => value !== null).length < FEW;

export interface Band {
  low: Num[];
  mean: Num[];
  high: Num[];
}

/** Mean, lowest and highest over the seeds that have a value at the step. */
export function band(columns: Num[][]): Band {
  const result: Band = { low: [], mean: [], high: [] };
  for (let i = 0; i < (columns[0]?.length ?? 0); i++) {
    const known = columns.map((column) => column[i] ?? null).filter((value): value is number => value !== null);
    result.low.push(known.length ? Math.min(...known) : null);
    result.high.push(known.length ? Math.max(...known) : null);
    result.mean.push(known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null);
  }
  return result;
}

/** For a logarithmic axis: what is not above zero cannot be drawn. */
export const positive = (values: Num[]): Num[] => values.map((value) => (value !== null && value > 0 ? value : null));
