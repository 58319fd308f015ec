/** Common beginnings and the order of columns. */
import type { Rollout, Row } from "../data/types.ts";

export const ORDERS = ["as sampled", "reward", "advantage", "length"] as const;
export type Order = (typeof ORDERS)[number];

export function readOrder(text: string): Order {
  return ORDERS.find((order) => order === text) ?? "as sampled";
}

export function arrange(rows: Row[], order: Order): Row[] {
  if (order === "as sampled") return rows;
  const value = (row: Row): number | null => (order === "length" ? row.tokens : row[order]);
  return [...rows].sort((a, b) => (value(b) ?? -Infinity) - (value(a) ?? -Infinity));
}

/** The number of segments that all the rollouts begin with: the prompt, which is shown once. */
export function sharedSegments(rollouts: Rollout[]): number {
  const first = rollouts[0];
  if (!first?.segments || rollouts.some((rollout) => !rollout.segments || !rollout.tokens?.text)) return 0;
  for (let i = 0; i < first.segments.length; i++) {
    const segment = first.segments[i];
    if (!segment || segment.kind === "reply") return i;
    const same = rollouts.every((rollout) => {
      const other = rollout.segments?.[i];
      if (other?.begin !== segment.begin || other.end !== segment.end || other.kind !== segment.kind) return false;
      for (let t = segment.begin; t < segment.end; t++) if (rollout.tokens?.ids[t] !== first.tokens?.ids[t]) return false;
      return true;
    });
    if (!same) return i;
  }
  return 0; // never a rollout without a column of its own
}
