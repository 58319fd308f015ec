/** A filtered and sorted listing of the run in the address, which follows the run while it grows. */
import { useEffect, useState } from "preact/hooks";
import * as api from "../data/api.ts";
import { useAnswer } from "../data/fetch.ts";
import { counter, counters } from "../data/store.ts";
import type { Files, Run, Selection } from "../data/types.ts";
import { parseQuery, type Parsed, toggleItem } from "../query/parse.ts";
import { param, setParams } from "../route.ts";
import { type Page, Pages } from "../ui/virtual.tsx";

export interface Listing<T> {
  parsed: Parsed;
  pages: Pages<T> | null;
  /** There is more than when the list was fetched. */
  stale: boolean;
  refresh: () => void;
  chosen: number;
  choose: (index: number) => void;
}

type Fetch<T> = (selection: Selection, offset: number, limit: number) => Promise<Page<T>>;

export function useListing<T>(run: Run, sort: string, fetch: Fetch<T>): Listing<T> {
  const parsed = parseQuery(param("q"));
  const [pages, setPages] = useState<Pages<T> | null>(null);
  const [chosen, choose] = useState(-1);
  const now = counter(run.id, "rollouts") + counter(run.id, "held_out");
  const [seen, setSeen] = useState(now);
  const file = param("file", "train");
  const key = JSON.stringify([run.id, parsed.where, sort, file]);
  useEffect(() => choose(-1), [key]);
  useEffect(() => {
    if (!parsed.where) return;
    const selection = { where: parsed.where, sort, file };
    const next = new Pages<T>((offset, limit) => fetch(selection, offset, limit));
    let current = true;
    // The old list stays until the new one has something to show.
    void next.first().then(() => current && setPages(next));
    return () => {
      current = false;
    };
  }, [key, seen]);
  // Nothing moves under the reader's eyes: a list that was scrolled waits for its button, and one of a run that is still
  // being read for the end of that.
  const stale = now !== seen;
  const reading = counters.value[run.id]?.indexing != null && (pages?.matched.value ?? 0) > 0;
  useEffect(() => {
    const list = document.querySelector(".virtual");
    if (stale && !reading && (list?.scrollTop ?? 0) === 0 && chosen < 0) setSeen(now);
  }, [now, reading]);
  return { parsed, pages, stale, refresh: () => setSeen(now), chosen, choose };
}

export function useFiles(run: Run): Files {
  const growth = counter(run.id, "rollouts") + counter(run.id, "held_out");
  const answer = useAnswer(`${run.id} ${growth}`, () => api.files(run.id));
  return answer.value ?? { train: { steps: [] }, held_out: [] };
}

/** Filter by the step before or after the one that is filtered by; the last step if there is none. */
export function stepBy(direction: 1 | -1, files: Files): void {
  const steps = files.train.steps;
  const query = param("q");
  const item = query.split(/\s+/).find((each) => /^step:\d+$/.test(each));
  const at = item ? steps.indexOf(Number(item.slice(5))) : -1;
  const next = item ? steps[Math.min(steps.length - 1, Math.max(0, at + direction))] : steps.at(-1);
  if (next === undefined || item === `step:${next}`) return;
  setParams({ q: toggleItem(item ? toggleItem(query, item) : query, `step:${next}`) });
}
