/** Small parts that several pages have. */
import type { ComponentChildren } from "preact";
import { param, setParams } from "../route.ts";
import { runs } from "../data/store.ts";
import { shortened, signed } from "../format.ts";
import type { Num, Run } from "../data/types.ts";

/** What a page says when there is nothing to show: what will appear, and when. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty" role="status">
      <h2>{title}</h2>
      <p>{children}</p>
    </div>
  );
}

export function Problem({ text }: { text: string }) {
  if (!text) return null;
  return <p class="problem" role="alert">{text}</p>;
}

export function Loading({ what }: { what: string }) {
  return <p class="loading muted" role="status">Reading {what} …</p>;
}

/** The run that the page is about: the one in the address, else the first. */
export function currentRun(): Run | undefined {
  const all = runs.value ?? [];
  return all.find((run) => run.id === param("run")) ?? all[0];
}

export function RunPicker() {
  const all = runs.value ?? [];
  const current = currentRun();
  if (!current) return null;
  return (
    <label class="picker">
      <span class="visually-hidden">Run</span>
      <select value={current.id} title={current.name} onChange={(event) => setParams({ run: event.currentTarget.value, group: null, key: null, file: null }, true)}>
        {all.map((run) => <option value={run.id} title={run.name} key={run.id}>{shortened(run.name)}</option>)}
      </select>
    </label>
  );
}

/** Tags for what a row wants noticed. */
export function Tag({ kind, children, title }: { kind: "drop" | "zero" | "good" | "plain"; children: ComponentChildren; title?: string }) {
  return <span class={`tag tag-${kind}`} title={title}>{children}</span>;
}

export function Signed({ value }: { value: Num }) {
  const tone = value === null || value === 0 ? "" : value > 0 ? "positive" : "negative";
  return <span class={`num ${tone}`}>{signed(value)}</span>;
}

/** A number between the lowest and the highest as a bar, for eyes that run down a column. */
export function Bar({ value, low, high }: { value: Num; low: number; high: number }) {
  const share = value === null || high <= low ? 0 : (value - low) / (high - low);
  return <span class="bar" aria-hidden="true"><i style={{ width: `${Math.round(100 * Math.min(1, Math.max(0, share)))}%` }} /></span>;
}
