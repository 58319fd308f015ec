/** The frame of all pages: where one is, whether the run is alive, light or dark. */
import { Fragment } from "preact";
import { useKeys, helpOpen } from "./keys.ts";
import { isDark, toggleTheme } from "./theme.ts";
import { link, type Page, param, type Params, route } from "./route.ts";
import { connection, counter, counters, indexing, problem, runs, trainings } from "./data/store.ts";
import { number, plural } from "./format.ts";
import { ComparePage } from "./compare/page.tsx";
import { CurvesPage } from "./curves/page.tsx";
import { GroupPage } from "./groups/group_page.tsx";
import { GroupsPage } from "./groups/page.tsx";
import { MonitorsPage } from "./monitors/page.tsx";
import { RolloutPage } from "./rollouts/rollout_page.tsx";
import { RolloutsPage } from "./rollouts/page.tsx";
import { currentRun, Loading, Problem } from "./ui/parts.tsx";
import { Help } from "./ui/help.tsx";

const VIEWS: Record<Page, () => preact.VNode> = {
  curves: () => <CurvesPage />,
  groups: () => <GroupsPage />,
  group: () => <GroupPage />,
  rollouts: () => <RolloutsPage />,
  rollout: () => <RolloutPage />,
  compare: () => <ComparePage />,
  monitors: () => <MonitorsPage />,
};

const TABS: [Page, string, Page[]][] = [
  ["curves", "Curves", ["curves"]],
  ["groups", "Groups", ["groups", "group"]],
  ["rollouts", "Rollouts", ["rollouts", "rollout"]],
  ["compare", "Compare", ["compare"]],
  ["monitors", "Monitors", ["monitors"]],
];

export function App() {
  const page = route.value.page === "curves" && runs.value?.length && !trainings.value.length ? "compare" : route.value.page;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>Skip to the content</a>
      <TopBar page={page} />
      <Status />
      <main id="main" tabIndex={-1} class={`page page-${page}`}>
        {runs.value === null ? problem.value ? <Problem text={problem.value} /> : <Loading what="the runs" /> : VIEWS[page]()}
      </main>
      <Help />
    </>
  );
}

function TopBar({ page }: { page: Page }) {
  useKeys({});
  const run = param("run") || (page === "curves" ? param("runs").split(",")[0] : "");
  const address = (to: Page): Params => (to === "curves" ? { runs: param("runs") || null } : to === "compare" ? {} : { run });
  const raised = counter(currentRun()?.id ?? "", "monitors");
  return (
    <header class="top">
      <a class="brand" href={link("curves")}>slimrl</a>
      <nav aria-label="Pages">
        {TABS.map(([to, label, members]) => (
          // A click would leave the focus here, and Enter belongs to the row that `j` marks.
          <a href={link(to, address(to))} aria-current={members.includes(page) ? "page" : undefined} onClick={(event) => event.detail && event.currentTarget.blur()} key={to}>
            {label}
            {to === "monitors" && raised > 0 && <span class="badge" title="alarms">{raised}</span>}
          </a>
        ))}
      </nav>
      <div class="top-right">
        <Pulse />
        <button type="button" class="quiet" onClick={toggleTheme} aria-label={isDark() ? "Light colours" : "Dark colours"} title={isDark() ? "Light colours" : "Dark colours"}>
          {isDark() ? "☀" : "☾"}
        </button>
        <button type="button" class="quiet" onClick={() => (helpOpen.value = true)} aria-label="Keys" title="Keys ( ? )">?</button>
      </div>
    </header>
  );
}

function Pulse() {
  const live = (runs.value ?? []).filter((run) => run.live);
  if (connection.value === "lost") return <span class="pulse pulse-lost" role="status">no answer</span>;
  if (!live.length) return <span class="pulse muted" role="status" title="No run is being written; new ones are noticed">at rest</span>;
  const one = live[0];
  const step = live.length === 1 && one?.step !== null && one?.step !== undefined ? `, step ${one.step}` : "";
  return <span class="pulse" role="status" title={`${live.map((run) => run.name).join(", ")}: being written now. Steps count from 0, as in the files; the console counts them from 1`}><i class="live-dot" />live{step}</span>;
}

function Status() {
  const busy = indexing.value;
  return (
    <>
      {connection.value === "lost" && runs.value !== null && <Problem text={problem.value} />}
      {Object.values(counters.value).map(({ id, damaged = 0, problem: why = "" }) => (
        <Fragment key={id}>
          {why && <Problem text={`${id}: ${why}`} />}
          {damaged > 0 && <p class="note banner">{id}: {plural(damaged, "damaged line")} of its rollout files left out.</p>}
        </Fragment>
      ))}
      {busy.map(({ id, indexing: at }) => at && (
        <p class="banner indexing" role="status" key={id}>
          <progress max={at.total_bytes} value={at.done_bytes} /> Reading rollouts of {id}: {number(100 * at.done_bytes / Math.max(1, at.total_bytes), 2)}%. Those read already are shown.
        </p>
      ))}
    </>
  );
}
