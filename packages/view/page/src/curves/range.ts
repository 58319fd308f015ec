/** The range of a chart's y axis: the values with some room around them, within the possible values. */
import type { Metric, Num } from "../data/types.ts";

export type Ends = [least: number, most: number];

export const isKnown = (value: Num): value is number => value !== null;

/** The least and the largest possible value of a metric. A reward and an environment's metric declare none: if all of its
 * values lie from 0 to 1, these are taken for them. */
export function possible(metric: Metric | undefined, values: Num[]): Ends {
  let [least, most] = [Infinity, -Infinity];
  for (const value of values.filter(isKnown)) [least, most] = [Math.min(least, value), Math.max(most, value)];
  const open = !metric || ["reward", "its own"].includes(metric.unit);
  const [low, high] = [metric?.least ?? (least >= 0 ? 0 : -Infinity), metric?.most ?? (open && least >= 0 && most <= 1 ? 1 : Infinity)];
  return [Math.min(low, least), Math.max(high, most)];
}

/** Some room above and below, and a line through the middle where all values are equal. */
export function padded([least, most]: Ends, min: Num, max: Num): Ends {
  if (min === null || max === null || (min === 0 && max === 0)) return [0, 1];
  const room = min === max ? Math.abs(min || 1) * 0.1 : (max - min) * 0.08;
  return [Math.max(least, min - room), Math.min(most, max + room)];
}
