/** How the points that are known grow. */
import type { Points } from "../data/types.ts";

/** What was known with what has come: new points replace those of their steps and later. */
export function merge(known: Record<string, Points>, news: Record<string, Points>): Record<string, Points> {
  const merged = { ...known };
  for (const [name, points] of Object.entries(news)) {
    const first = points[0]?.[0];
    if (first === undefined) continue;
    merged[name] = [...(known[name] ?? []).filter(([step]) => step < first), ...points];
  }
  return merged;
}
