/** What stands above a list: the run, the file, the order, and the reasons to click on. */
import type { Facets, Files } from "../data/types.ts";
import { plural, shortened, whole, worded } from "../format.ts";
import { hasItem, toggleItem, writeItem } from "../query/parse.ts";
import { param, setParams } from "../route.ts";

export function FilePicker({ files }: { files: Files }) {
  if (!files.held_out.length) return null;
  return (
    <label class="picker">
      <span class="visually-hidden">Rollouts of</span>
      <select value={param("file", "train")} onChange={(event) => setParams({ file: event.currentTarget.value === "train" ? null : event.currentTarget.value })}>
        <option value="train">training</option>
        {files.held_out.map(({ name, num }) => <option value={`held_out/${name}`} title={worded(name)} key={name}>held out: {shortened(worded(name))} ({num})</option>)}
      </select>
    </label>
  );
}

export function SortPicker({ value, options }: { value: string; options: [string, string][] }) {
  return (
    <label class="picker">
      <span class="visually-hidden">Order</span>
      <select value={value} onChange={(event) => setParams({ sort: event.currentTarget.value })}>
        {options.map(([sort, label]) => <option value={sort} key={sort}>{label}</option>)}
        {!options.some(([sort]) => sort === value) && <option value={value}>{value}</option>}
      </select>
    </label>
  );
}

/** Click a drop reason, an environment or a role to filter by it. */
export function FacetBar({ facets }: { facets: Facets }) {
  const query = param("q");
  const chips = ["drop", "environment", "role", "stop"].flatMap((field) => {
    const counts = Object.entries(facets[field] ?? {}).filter(([value]) => value !== "");
    if (field !== "drop" && Object.keys(facets[field] ?? {}).length < 2 && !counts.some(([value]) => hasItem(query, writeItem(field, value)))) return [];
    return counts.sort((a, b) => b[1] - a[1]).map(([value, count]) => ({ field, value, count, item: writeItem(field, value) }));
  });
  if (!chips.length) return null;
  return (
    <div class="facets" role="group" aria-label="Filter by">
      {chips.map(({ field, value, count, item }) => (
        <button type="button" key={item} aria-pressed={hasItem(query, item)} class={`facet facet-${field}`} onClick={() => setParams({ q: toggleItem(query, item) || null })}>
          {field === "drop" ? `drop/${value}` : value} <span class="muted">{whole(count)}</span>
        </button>
      ))}
    </div>
  );
}

export function Count({ matched, total, what }: { matched: number | null; total: number; what: string }) {
  if (matched === null) return <span class="muted small">…</span>;
  const all = plural(total, what);
  return <span class="muted small" role="status">{matched === total ? all : `${whole(matched)} of ${all}`}</span>;
}

export function Stale({ stale, refresh }: { stale: boolean; refresh: () => void }) {
  return stale ? <button type="button" class="fresh" onClick={refresh}>There is more: show it</button> : null;
}
