/** How far the y axis of a chart reaches: with some room around the values, and never to what cannot be. */
import type { Metric, Num } from "../data/types.ts";

export type Ends = [least: number, most: number];

export const isKnown = (value: Num): value is number => value !== null;

/** The ends of what a metric can be. Those of a reward or of an environment's metric are not declared: one that has stayed
 * from 0 to 1 is taken to end there. */
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
