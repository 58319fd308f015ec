/** All metrics by group, to search and choose among. */
import { Fragment } from "preact";
import { useState } from "preact/hooks";
import { number } from "../format.ts";
import { meaningOf, registry } from "../data/store.ts";
import type { Points } from "../data/types.ts";
import type { RunSeries } from "./lines.ts";

interface Props {
  names: string[];
  chosen: string[];
  runs: RunSeries[];
  toggle: (name: string) => void;
}

const groupOf = (name: string): string => name.split("/")[0] ?? "";

/** Group names in the order of the registry, others after them. */
function groupsOf(names: string[]): string[] {
  const order = Object.keys(registry.value.groups);
  const rank = (group: string): number => (order.includes(group) ? order.indexOf(group) : order.length);
  return [...new Set(names.map(groupOf))].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}

export function MetricList(props: Props) {
  const [search, setSearch] = useState("");
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = props.names.filter((name) => {
    const text = `${name} ${meaningOf(name)?.meaning ?? ""}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  return (
    <div class="metrics">
      <input
        type="search" class="search" placeholder="Search metrics" aria-label="Search metrics" data-search value={search}
        onInput={(event) => setSearch(event.currentTarget.value)}
      />
      {groupsOf(found).map((group) => (
        <GroupOfMetrics key={group} group={group} {...props} names={found.filter((name) => groupOf(name) === group)} searching={words.length > 0} />
      ))}
      {props.names.length > 0 && !found.length && <p class="muted">No metric of these runs has “{search}” in its name or meaning.</p>}
    </div>
  );
}

function GroupOfMetrics({ group, names, searching, ...props }: Props & { group: string; searching: boolean }) {
  const anyChosen = names.some((name) => props.chosen.includes(name));
  const [open, setOpen] = useState(anyChosen || group === "reward");
  return (
    <details class="metric-group" open={open || searching} onToggle={(event) => !searching && setOpen(event.currentTarget.open)}>
      <summary title={registry.value.groups[group] ?? ""}>{group}<span class="muted count">{names.length}</span></summary>
      {(open || searching) && names.sort().map((name) => <MetricRow {...props} name={name} searching={searching} key={name} />)}
    </details>
  );
}

function MetricRow({ name, chosen, runs, toggle, searching }: Omit<Props, "names"> & { name: string; searching: boolean }) {
  const metric = meaningOf(name);
  const points = runs.find((run) => run.series[name]?.length)?.series[name] ?? [];
  const about = [metric?.meaning, metric?.healthy && `Healthy: ${metric.healthy}.`].filter(Boolean).join(". ");
  return (
    <label class="metric" title={about}>
      <input type="checkbox" checked={chosen.includes(name)} onChange={() => toggle(name)} />
      <span class="metric-name"><Breakable text={name.slice(groupOf(name).length + 1) || name} /></span>
      <Spark points={points} />
      <span class="metric-value" title={points.length ? `at step ${points.at(-1)?.[0]}` : ""}>{number(points.at(-1)?.[1], 3)}</span>
      {searching && about && <span class="metric-about muted small">{about}</span>}
    </label>
  );
}

/** A name that may be broken behind its underscores. */
function Breakable({ text }: { text: string }) {
  return <>{text.split(/(?<=_)/).map((word, i) => <Fragment key={i}>{i > 0 && <wbr />}{word}</Fragment>)}</>;
}

const [WIDTH, HEIGHT, MOST] = [40, 14, 60];

function Spark({ points }: { points: Points }) {
  const stride = Math.max(1, Math.floor(points.length / MOST));
  const values = points.filter((_, i) => i % stride === 0).map(([, value]) => value).filter((value): value is number => value !== null);
  if (values.length < 2) return <span class="spark" />;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const place = (value: number, i: number): string => {
    const y = high === low ? HEIGHT / 2 : HEIGHT - 1 - ((value - low) / (high - low)) * (HEIGHT - 2);
    return `${((i / (values.length - 1)) * WIDTH).toFixed(1)},${y.toFixed(1)}`;
  };
  return (
    <svg class="spark" width={WIDTH} height={HEIGHT} aria-hidden="true">
      <polyline points={values.map(place).join(" ")} fill="none" stroke="currentColor" stroke-width="1" />
    </svg>
  );
}
