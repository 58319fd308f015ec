/** Every rollout of a run, to filter, sort and search. */
import { useSignal } from "@preact/signals";
import * as api from "../data/api.ts";
import type { Facets, Row, Run } from "../data/types.ts";
import { number, NONE } from "../format.ts";
import { focusSearch, useKeys } from "../keys.ts";
import { QueryBox } from "../query/box.tsx";
import { toggleItem, writeItem } from "../query/parse.ts";
import { go, link, param, setParams } from "../route.ts";
import { Visible } from "../text/chips.tsx";
import { currentRun, Empty, Loading, Problem, RunPicker, Signed, Tag } from "../ui/parts.tsx";
import { useNarrow } from "../ui/narrow.ts";
import { VirtualList } from "../ui/virtual.tsx";
import { Count, FacetBar, FilePicker, SortPicker, Stale } from "./controls.tsx";
import { stepBy, useFiles, useListing } from "./listing.ts";

const SORTS: [string, string][] = [
  ["-step", "newest first"],
  ["step", "oldest first"],
  ["-reward", "highest reward"],
  ["reward", "lowest reward"],
  ["-advantage", "highest advantage"],
  ["advantage", "lowest advantage"],
  ["-tokens", "longest"],
  ["-turns", "most turns"],
  ["task", "by task"],
];

export function RolloutsPage() {
  const run = currentRun();
  return run ? <RolloutList run={run} key={run.id} /> : <Loading what="the runs" />;
}

function RolloutList({ run }: { run: Run }) {
  const files = useFiles(run);
  const sort = param("sort", "-step");
  const total = useSignal(0);
  const facets = useSignal<Facets>({});
  const listing = useListing<Row>(run, sort, async (selection, offset, limit) => {
    const answer = await api.rollouts(run.id, selection, offset, limit);
    total.value = answer.total;
    if (answer.facets) facets.value = answer.facets;
    return { items: answer.rows, matched: answer.matched };
  });
  const { pages, chosen, choose } = listing;
  const matched = pages?.matched.value ?? null;
  const open = (row: Row | undefined): void => void (row && go("rollout", { run: run.id, key: row.key }));
  useKeys({
    j: () => choose(Math.min((matched ?? 0) - 1, chosen + 1)),
    k: () => choose(Math.max(0, chosen - 1)),
    Enter: () => open(pages?.get(chosen)),
    Escape: () => setParams({ q: null }),
    "/": focusSearch,
    "[": () => stepBy(-1, files),
    "]": () => stepBy(1, files),
  });
  const narrow = useNarrow();
  return (
    <div class="listing">
      <div class="listing-head">
        <RunPicker /><FilePicker files={files} /><SortPicker value={sort} options={SORTS} />
        <Count matched={matched} total={total.value} what="rollout" />
        <Stale {...listing} />
      </div>
      <QueryBox parsed={listing.parsed} what="rollouts" />
      <FacetBar facets={facets.value} />
      <Problem text={pages?.problem.value ?? ""} />
      {!narrow && <Heads sort={sort} />}
      {pages && matched === 0 ? (
        <Empty title={total.value ? "No rollout matches" : "No rollouts yet"}>
          {total.value ? "Loosen the filter; Escape clears it." : "They appear here when the first training step has ended."}
        </Empty>
      ) : pages ? (
        <VirtualList pages={pages} rowHeight={narrow ? 70 : 44} chosen={chosen} label="Rollouts" row={(row) => <RolloutRow row={row} run={run.id} />} />
      ) : (
        !listing.parsed.error && <Loading what="rollouts" />
      )}
    </div>
  );
}

const COLUMNS: [string, string, boolean][] = [
  ["step", "step", true], ["task", "task", false], ["reward", "reward", true], ["advantage", "advantage", true],
  ["turns", "turns", true], ["tokens", "tokens", true], ["tool_calls", "tools", true], ["", "", false], ["", "last reply", false],
];

function Heads({ sort }: { sort: string }) {
  return (
    <div class="row row-head">
      {COLUMNS.map(([field, label, numeric], i) => {
        const next = sort === `-${field}` ? field : `-${field}`;
        const arrow = sort === field ? " ↑" : sort === `-${field}` ? " ↓" : "";
        return (
          <span class={numeric ? "num" : ""} key={i}>
            {field ? <button type="button" class="head" title={`Sort by ${label}`} onClick={() => setParams({ sort: next })}>{label}{arrow}</button> : label}
          </span>
        );
      })}
    </div>
  );
}

export function RolloutRow({ row, run }: { row: Row; run: string }) {
  const filter = (item: string) => () => setParams({ q: toggleItem(param("q"), item) || null });
  return (
    <div class="row" role="gridcell">
      <span class="num muted cell-step"><span class="only-narrow">step </span>{row.step ?? NONE}</span>
      <span class="cell-task">
        <a class="row-link" href={link("rollout", { run, key: row.key })}><Visible text={row.task} /></a>
        {row.role && <span class="muted"> {row.role}</span>}
      </span>
      <span class="num cell-reward">{number(row.reward, 3)}</span>
      <span class="num cell-advantage"><Signed value={row.advantage} /></span>
      <span class="num muted cell-wide">{row.turns}</span>
      <span class="num muted cell-wide">{row.tokens}</span>
      <span class="num muted cell-wide">{row.tool_calls}</span>
      <span class="cell-tags">
        {row.drop && <button type="button" class="tag tag-drop" title={`Not trained on: ${row.drop}. Click to filter.`} onClick={filter(writeItem("drop", row.drop))}>{row.drop}</button>}
        {!row.drop && row.zero_signal === 1 && <Tag kind="zero" title="All rollouts of its group have advantage 0">zero</Tag>}
      </span>
      <span class="cell-excerpt muted"><Visible text={row.excerpt.replace(/\s+/g, " ")} /></span>
    </div>
  );
}
