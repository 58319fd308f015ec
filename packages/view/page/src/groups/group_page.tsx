/** The rollouts of a task side by side. */
import { useEffect, useMemo, useState } from "preact/hooks";
import * as api from "../data/api.ts";
import { useAnswer } from "../data/fetch.ts";
import type { Rollout, Row, Run } from "../data/types.ts";
import { number, plural } from "../format.ts";
import { useKeys } from "../keys.ts";
import { parseQuery } from "../query/parse.ts";
import { go, link, param, setParams } from "../route.ts";
import { Visible } from "../text/chips.tsx";
import { Conversation } from "../tokens/conversation.tsx";
import { hovered, Readout } from "../tokens/hover.tsx";
import { ColourPicker, Legend } from "../tokens/legend.tsx";
import { nextMode, readMode, type Scale, scaleOf } from "../tokens/scale.ts";
import { currentRun, Loading, Problem, Tag } from "../ui/parts.tsx";
import { useNarrow } from "../ui/narrow.ts";
import { TaskData } from "../ui/task_data.tsx";
import { Column } from "./column.tsx";
import { arrange, ORDERS, readOrder, sharedSegments } from "./order.ts";

export function GroupPage() {
  const run = currentRun();
  const name = param("group");
  if (!run) return <Loading what="the runs" />;
  return <GroupView run={run} name={name} file={param("file", "train")} key={`${run.id} ${name}`} />;
}

/** Details arrive one by one; each is shown as it comes. */
function useDetails(run: string, rows: Row[]): { details: Record<string, Rollout>; problems: Record<string, string> } {
  const [details, setDetails] = useState<Record<string, Rollout>>({});
  const [problems, setProblems] = useState<Record<string, string>>({});
  useEffect(() => {
    for (const { key } of rows)
      api.rollout(run, key).then(
        (rollout) => setDetails((known) => ({ ...known, [key]: rollout })),
        (error: Error) => setProblems((known) => ({ ...known, [key]: error.message })),
      );
  }, [rows]);
  return { details, problems };
}

const NO_ROWS: Row[] = [];

function GroupView({ run, name, file }: { run: Run; name: string; file: string }) {
  const answer = useAnswer(`${run.id} ${name} ${file}`, () => api.group(run.id, name, file));
  const all = answer.value?.rows ?? NO_ROWS;
  const rows = useMemo(() => arrange(all, readOrder(param("order"))), [all, param("order")]);
  const { details, problems } = useDetails(run.id, all);
  const mode = readMode(param("color"));
  const known = rows.map((row) => details[row.key]).filter((rollout): rollout is Rollout => rollout !== undefined);
  const complete = known.length === rows.length;
  const scale = useMemo(() => scaleOf(known, mode), [known.length, mode, rows]);
  const shared = complete && known.length > 1 ? sharedSegments(known) : 0;
  const from = shared ? (known[0]?.segments?.[shared - 1]?.end ?? 0) : 0;
  const [focus, setFocus] = useState(-1);
  const narrow = useNarrow();
  const neighbours = useNeighbours(run, name, file);
  const move = (step: number): void => {
    const next = Math.min(rows.length - 1, Math.max(0, focus + step));
    setFocus(next);
    document.querySelector(`[data-column="${next}"]`)?.scrollIntoView({ inline: "nearest", block: "nearest" });
  };
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    Enter: () => rows[focus] && go("rollout", { run: run.id, key: rows[focus].key, color: mode }),
    Escape: () => go("groups", { run: run.id, q: param("q"), sort: param("sort"), file: file === "train" ? null : file }),
    c: () => setParams({ color: nextMode(mode) }),
    "[": () => neighbours.before && setParams({ group: neighbours.before }, true),
    "]": () => neighbours.after && setParams({ group: neighbours.after }, true),
  });
  const rewards = rows.map((row) => row.reward).filter((reward): reward is number => reward !== null);
  const range: [number, number] = [Math.min(0, ...rewards), Math.max(1, ...rewards)];
  return (
    <div class="group">
      <GroupHead run={run} rows={rows} file={file} neighbours={neighbours} />
      <Problem text={answer.error} />
      {answer.loading && !rows.length && <Loading what="the group" />}
      <div class="colour-line">
        <ColourPicker mode={mode} choose={(next) => setParams({ color: next })} />
        {complete && rows.length > 0 ? <Legend scale={scale} /> : <span class="legend" />}
        <OrderPicker />
      </div>
      {known[0]?.tokens_note && <p class="note">{known[0].tokens_note}</p>}
      <TaskData data={known[0]?.task_data} />
      {shared > 0 && known[0] && <SharedPrompt rollout={known[0]} to={from} scale={scale} count={rows.length} />}
      <div class={isShort(rows) && !narrow ? "columns compact" : "columns"} tabIndex={0} style={{ gridAutoColumns: columnWidth(rows, narrow) }} aria-label="Rollouts of the group" onScroll={() => (hovered.value = null)}>
        {rows.map((row, i) => (
          <Column
            key={row.key} run={run.id} row={row} rollout={complete || i < 3 ? details[row.key] : undefined} problem={problems[row.key] ?? ""}
            scale={scale} from={from} place={i} focused={i === focus} range={range} choose={() => setFocus(i)}
          />
        ))}
      </div>
      <Readout mode={mode} />
    </div>
  );
}

const longestOf = (rows: Row[]): number => Math.max(0, ...rows.map((row) => row.tokens));
const isShort = (rows: Row[]): boolean => longestOf(rows) < 40;

/** Short rollouts need less room, and then more of them are seen at once: eight in a window of 1,280 pixels. */
function columnWidth(rows: Row[], narrow: boolean): string {
  return narrow ? "86vw" : `minmax(${isShort(rows) ? 10.5 : longestOf(rows) < 250 ? 18 : 22}rem, 1fr)`;
}

interface Neighbours {
  before: string;
  after: string;
}

/** The same task in the steps before and after if it was met there, else the next groups of the list. */
function useNeighbours(run: Run, name: string, file: string): Neighbours {
  const query = param("q");
  const sort = param("sort", "step");
  const answer = useAnswer(`${run.id} ${name} ${query} ${sort}`, async () => {
    const selection = { where: parseQuery(query).where ?? [], sort, file };
    const { groups } = await api.groups(run.id, selection, 0, 2000);
    const at = groups.findIndex(({ group }) => group === name);
    const own = groups[at];
    const step = own?.step ?? 0;
    const same = groups.filter(({ task, step: other }) => task === own?.task && other !== own?.step);
    const sorted = [...same].sort((a, b) => (a.step ?? 0) - (b.step ?? 0));
    return {
      before: sorted.filter((group) => (group.step ?? 0) < step).at(-1)?.group ?? groups[at - 1]?.group ?? "",
      after: sorted.find((group) => (group.step ?? 0) > step)?.group ?? groups[at + 1]?.group ?? "",
    };
  });
  return answer.value ?? { before: "", after: "" };
}

function GroupHead({ run, rows, file, neighbours }: { run: Run; rows: Row[]; file: string; neighbours: Neighbours }) {
  const first = rows[0];
  const rewards = rows.map((row) => row.reward).filter((reward): reward is number => reward !== null);
  const mean = rewards.length ? rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length : null;
  const dropped = rows.filter((row) => row.drop).length;
  const back = link("groups", { run: run.id, q: param("q"), sort: param("sort"), file: file === "train" ? null : file });
  const step = (name: string, label: string, text: string) => (
    <button type="button" disabled={!name} title={label} aria-label={label} onClick={() => setParams({ group: name }, true)}>{text}</button>
  );
  return (
    <header class="page-head">
      <a class="back" href={back}>Groups</a>
      <h1><Visible text={first?.task ?? param("group")} /></h1>
      <p class="facts">
        {[run.name, first?.environment, first?.role, first && first.step !== null ? `step ${first.step}` : ""].filter(Boolean).map((text) => <span key={text}>{text}</span>)}
        {first && <span>{plural(rows.length, "rollout")}, mean reward {number(mean, 3)}</span>}
        {dropped > 0 && <Tag kind="drop">{dropped} dropped</Tag>}
        {rows.length > 0 && rows.every((row) => row.zero_signal) && <Tag kind="zero" title="All advantages are 0: the group teaches nothing">zero signal</Tag>}
      </p>
      <div class="steps">{step(neighbours.before, "The group before ( [ )", "‹")}{step(neighbours.after, "The group after ( ] )", "›")}</div>
    </header>
  );
}

function OrderPicker() {
  const order = readOrder(param("order"));
  return (
    <label class="picker order-picker">
      <span class="muted small">order</span>
      <select value={order} onChange={(event) => setParams({ order: event.currentTarget.value === ORDERS[0] ? null : event.currentTarget.value })}>
        {ORDERS.map((each) => <option key={each}>{each}</option>)}
      </select>
    </label>
  );
}

function SharedPrompt({ rollout, to, scale, count }: { rollout: Rollout; to: number; scale: Scale; count: number }) {
  return (
    <details class="shared" open={to < 160 && !useNarrow()}>
      <summary>What all {count} begin with <span class="muted">{plural(to, "token")}</span></summary>
      <Conversation rollout={rollout} scale={scale} to={to} />
    </details>
  );
}
