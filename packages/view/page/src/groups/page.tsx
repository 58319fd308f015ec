/** The groups of a run: the rollouts of a task in a step, with the spread of their rewards. */
import { useSignal } from "@preact/signals";
import * as api from "../data/api.ts";
import type { Facets, Group, Run } from "../data/types.ts";
import { number, NONE, plural } from "../format.ts";
import { focusSearch, useKeys } from "../keys.ts";
import { QueryBox } from "../query/box.tsx";
import { Count, FacetBar, FilePicker, SortPicker, Stale } from "../rollouts/controls.tsx";
import { stepBy, useFiles, useListing } from "../rollouts/listing.ts";
import { go, link, param, setParams } from "../route.ts";
import { Visible } from "../text/chips.tsx";
import { useNarrow } from "../ui/narrow.ts";
import { currentRun, Empty, Loading, Problem, RunPicker, Tag } from "../ui/parts.tsx";
import { VirtualList } from "../ui/virtual.tsx";
import { Dots } from "./dots.tsx";

const SORTS: [string, string][] = [
  ["-step", "newest first"],
  ["step", "oldest first"],
  ["-std", "widest spread"],
  ["-mean", "highest mean"],
  ["mean", "lowest mean"],
  ["task", "by task"],
];

export function GroupsPage() {
  const run = currentRun();
  return run ? <GroupList run={run} key={run.id} /> : <Loading what="the runs" />;
}

function GroupList({ run }: { run: Run }) {
  const files = useFiles(run);
  const sort = param("sort", "-step");
  const file = param("file", "train");
  const total = useSignal(0);
  const range = useSignal<[number, number]>([0, 1]);
  const facets = useSignal<Facets>({});
  const listing = useListing<Group>(run, sort, async (selection, offset, limit) => {
    const answer = await api.groups(run.id, selection, offset, limit);
    if (!offset) {
      // The reasons that can be clicked on are those of the rollouts that match.
      facets.value = (await api.rollouts(run.id, { ...selection, sort: "" }, 0, 1)).facets ?? {};
    }
    total.value = answer.total;
    const ends = answer.groups.flatMap(({ min, max }) => [min, max]).filter((value): value is number => value !== null);
    range.value = [Math.min(range.value[0], ...ends), Math.max(range.value[1], ...ends)];
    return { items: answer.groups, matched: answer.matched };
  });
  const { pages, chosen, choose } = listing;
  const narrow = useNarrow();
  const matched = pages?.matched.value ?? null;
  const address = (group: Group) => ({ run: run.id, group: group.group, file: file === "train" ? null : file, q: param("q"), sort: param("sort") });
  useKeys({
    j: () => choose(Math.min((matched ?? 0) - 1, chosen + 1)),
    k: () => choose(Math.max(0, chosen - 1)),
    Enter: () => {
      const group = pages?.get(chosen);
      if (group) go("group", address(group));
    },
    Escape: () => setParams({ q: null }),
    "/": focusSearch,
    "[": () => stepBy(-1, files),
    "]": () => stepBy(1, files),
  });
  return (
    <div class="listing">
      <div class="listing-head">
        <RunPicker /><FilePicker files={files} /><SortPicker value={sort} options={SORTS} />
        <Count matched={matched} total={total.value} what="group" />
        <Stale {...listing} />
      </div>
      <QueryBox parsed={listing.parsed} what="groups" />
      <FacetBar facets={facets.value} />
      <Problem text={pages?.problem.value ?? ""} />
      {!narrow && (
        <div class="row row-group row-head" aria-hidden="true">
          <span class="num">step</span><span>task</span><span>rewards, {number(range.value[0], 2)} to {number(range.value[1], 2)}</span><span>mean ± std</span><span /><span /><span>prompt</span>
        </div>
      )}
      {pages && matched === 0 ? (
        <Empty title={total.value ? "No group matches" : "No groups yet"}>
          {total.value ? "A group is shown if one of its rollouts fits the filter; Escape clears it." : "A step's groups appear here when the step has ended."}
        </Empty>
      ) : pages ? (
        <VirtualList
          pages={pages} rowHeight={narrow ? 92 : 52} chosen={chosen} label="Groups"
          row={(group) => <GroupRow group={group} href={link("group", address(group))} range={range.value} />}
        />
      ) : (
        !listing.parsed.error && <Loading what="groups" />
      )}
    </div>
  );
}

function GroupRow({ group, href, range }: { group: Group; href: string; range: [number, number] }) {
  return (
    <div class="row row-group" role="gridcell">
      <span class="num muted cell-step"><span class="only-narrow">step </span>{group.step ?? NONE}</span>
      <span class="cell-task"><a class="row-link" href={href}><Visible text={group.task} /></a></span>
      <span class="cell-dots"><Dots rewards={group.rewards} range={range} /></span>
      <span class="num cell-reward" title="mean and standard deviation of the reward">
        {number(group.mean, 3)}<span class="muted"> ± {number(group.std, 2)}</span>
      </span>
      <span class="muted small cell-wide">{plural(group.num, "rollout")}</span>
      <span class="cell-tags">
        {group.dropped > 0 && <Tag kind="drop" title="rollouts that were not trained on">{group.dropped} dropped</Tag>}
        {group.zero_signal === 1 && <Tag kind="zero" title="All advantages are 0: the group teaches nothing">zero signal</Tag>}
      </span>
      <span class="cell-excerpt muted"><Visible text={group.prompt.replace(/\s+/g, " ")} /></span>
    </div>
  );
}
