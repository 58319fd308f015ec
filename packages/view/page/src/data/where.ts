/** Conditions on rows, evaluated in the browser: what the server does over its index, for exported files. */
import { DataError } from "./source.ts";
import type { Condition, Facets, Group, Num, Row, Selection } from "./types.ts";

type Value = string | Num | undefined;

const NUMERIC = ["step", "reward", "advantage", "turns", "tokens", "tool_calls", "zero_signal", "version"] as const;
const TEXTUAL = ["task", "environment", "role", "drop", "stop"] as const;

/** The file of a row: `train` or `held_out/NAME`. */
export function fileOf(row: Pick<Row, "file" | "key">): string {
  return row.file ?? row.key.split(":").slice(0, -2).join(":");
}

export function valueOf(row: Row, field: string): Value {
  if (field.startsWith("metric.")) return row.metrics?.[field.slice(7)];
  if (![...NUMERIC, ...TEXTUAL].some((known) => known === field))
    throw new DataError(`There is no field "${field}". Known are ${[...NUMERIC, ...TEXTUAL].join(", ")}, text and metric.NAME.`);
  return row[field as (typeof NUMERIC)[number] | (typeof TEXTUAL)[number]];
}

export function holds(row: Row, condition: Condition, text: () => string): boolean {
  const { field, op, value } = condition;
  if (field === "text" || op === "has") {
    const where = field === "text" ? text() : String(valueOf(row, field) ?? "");
    return where.toLowerCase().includes(String(value).toLowerCase());
  }
  const found = valueOf(row, field);
  if (op === "=") return found === value;
  if (op === "!=") return found !== value;
  if (typeof found !== "number" || typeof value !== "number") return false;
  if (op === "<") return found < value;
  if (op === "<=") return found <= value;
  return op === ">" ? found > value : found >= value;
}

/** Sort by a key; a leading minus means descending. What has no value comes last either way. */
export function sortBy<T>(items: T[], sort: string, value: (item: T, key: string) => Value): T[] {
  if (!sort) return items;
  const descending = sort.startsWith("-");
  const key = descending ? sort.slice(1) : sort;
  const sign = descending ? -1 : 1;
  return [...items].sort((a, b) => {
    const [x, y] = [value(a, key), value(b, key)];
    const missing = Number(x === null || x === undefined) - Number(y === null || y === undefined);
    if (missing || x === null || x === undefined || y === null || y === undefined) return missing;
    return x < y ? -sign : x > y ? sign : 0;
  });
}

export function selectRows(rows: Row[], selection: Selection, text: (row: Row) => string): Row[] {
  const kept = rows.filter(
    (row) => fileOf(row) === selection.file && selection.where.every((each) => holds(row, each, () => text(row))),
  );
  return sortBy(kept, selection.sort, valueOf);
}

export function countFacets(rows: Row[]): Facets {
  const facets: Facets = { drop: {}, environment: {}, stop: {}, role: {} };
  for (const row of rows)
    for (const [field, counts] of Object.entries(facets)) {
      const value = String(valueOf(row, field) ?? "");
      counts[value] = (counts[value] ?? 0) + 1;
    }
  return facets;
}

/** The groups of the rows, in the order of their first rows. */
export function groupsOf(rows: Row[]): Group[] {
  const found = new Map<string, Row[]>();
  for (const row of rows) {
    const members = found.get(row.group);
    if (members) members.push(row);
    else found.set(row.group, [row]);
  }
  return [...found.values()].map(groupOf);
}

function groupOf(rows: Row[]): Group {
  const first = rows[0] as Row;
  const known = rows.map((row) => row.reward).filter((reward): reward is number => reward !== null);
  const mean = known.length ? known.reduce((sum, reward) => sum + reward, 0) / known.length : null;
  return {
    group: first.group,
    step: first.step,
    task: first.task,
    num: rows.length,
    dropped: rows.filter((row) => row.drop).length,
    mean,
    min: known.length ? Math.min(...known) : null,
    max: known.length ? Math.max(...known) : null,
    std: mean === null ? null : Math.sqrt(known.reduce((sum, reward) => sum + (reward - mean) ** 2, 0) / known.length),
    zero_signal: Number(rows.every((row) => row.zero_signal)),
    rewards: rows.map((row) => row.reward),
    prompt: first.prompt,
  };
}
