/** The questions that the page asks, by name. */
import { get } from "./source.ts";
import type * as T from "./types.ts";

const of = (run: string, what: string): string => `/api/runs/${encodeURIComponent(run)}/${what}`;

const listing = ({ where, sort, file }: T.Selection, offset: number, limit: number): Record<string, string | number> => ({
  where: JSON.stringify(where),
  sort,
  offset,
  limit,
  file,
});

export const state = () => get("/api/state") as Promise<T.State>;
export const runs = () => get("/api/runs") as Promise<T.Run[]>;
export const registry = () => get("/api/registry") as Promise<T.Registry>;
export const monitors = (run: string) => get(of(run, "monitors")) as Promise<{ alarms: T.Alarm[] }>;
export const watched = (run: string) => get(of(run, "watched")) as Promise<{ monitors: T.Watched[] }>;
export const reference = (run: string) => get(of(run, "reference")) as Promise<T.Reference | null>;
export const files = (run: string) => get(of(run, "files")) as Promise<T.Files>;

export const metrics = (run: string, since: number | null) =>
  get(of(run, "metrics"), since === null ? {} : { since }) as Promise<T.MetricsAnswer>;

export const rollouts = (run: string, selection: T.Selection, offset: number, limit: number) =>
  get(of(run, "rollouts"), {
    ...listing(selection, offset, limit),
    ...(offset ? {} : { facets: 1 }),
  }) as Promise<T.RowsAnswer>;

export const groups = (run: string, selection: T.Selection, offset: number, limit: number) =>
  get(of(run, "groups"), listing(selection, offset, limit)) as Promise<T.GroupsAnswer>;

export const group = (run: string, name: string, file: string) =>
  get(of(run, "group"), { group: name, file }) as Promise<T.GroupAnswer>;

export const rollout = (run: string, key: string) => get(of(run, "rollout"), { key }) as Promise<T.Rollout>;
export const task = (run: string, name: string) => get(of(run, "task"), { task: name }) as Promise<{ rows: T.Row[] }>;

export const heldOutPairs = (left: string, right: string) =>
  get("/api/held_out_pairs", { left, right }) as Promise<T.PairsAnswer>;
