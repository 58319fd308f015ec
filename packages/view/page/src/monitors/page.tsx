/** What looked wrong, since when, why that may be, and what to turn. */
import { useEffect } from "preact/hooks";
import { alarms, useMetrics, metricsProblem } from "../curves/data.ts";
import type { Alarm, Run } from "../data/types.ts";
import { number, plural } from "../format.ts";
import { useKeys } from "../keys.ts";
import { link, param } from "../route.ts";
import { counter } from "../data/store.ts";
import { Visible } from "../text/chips.tsx";
import { currentRun, Empty, Loading, Problem, RunPicker } from "../ui/parts.tsx";
import { WatchedMonitors } from "./watched.tsx";

interface Raised {
  monitor: string;
  alarms: Alarm[]; // by step
}

export function MonitorsPage() {
  const run = currentRun();
  return run ? <Monitors run={run} key={run.id} /> : <Loading what="the runs" />;
}

function byMonitor(list: Alarm[]): Raised[] {
  const found = new Map<string, Alarm[]>();
  for (const alarm of list) found.set(alarm.monitor, [...(found.get(alarm.monitor) ?? []), alarm]);
  const raised = [...found].map(([monitor, its]) => ({ monitor, alarms: its.sort((a, b) => a.step - b.step) }));
  return raised.sort((a, b) => (b.alarms.at(-1)?.step ?? 0) - (a.alarms.at(-1)?.step ?? 0));
}

function Monitors({ run }: { run: Run }) {
  useMetrics([run.id]);
  useKeys({});
  const list = alarms.value[run.id];
  const raised = byMonitor(list ?? []);
  const at = param("at");
  useEffect(() => {
    if (at) document.getElementById(`alarm-${at}`)?.scrollIntoView({ block: "center" });
  }, [at, list]);
  return (
    <div class="monitors">
      <div class="listing-head">
        <RunPicker />
        {list && <span class="muted small" role="status">{raised.length ? `${plural(raised.length, "monitor")} raised ${plural(list.length, "alarm")}` : "no alarm"}</span>}
      </div>
      <Problem text={metricsProblem.value} />
      {!list && !metricsProblem.value && <Loading what="the monitors" />}
      {raised.map((each) => <RaisedMonitor {...each} run={run} at={at} key={each.monitor} />)}
      {counter(run.id, "metrics") || run.step !== null ? (
        <WatchedMonitors run={run} />
      ) : (
        list && !raised.length && <Empty title="Nothing was raised">The monitors begin with the first training step.</Empty>
      )}
    </div>
  );
}

function RaisedMonitor({ monitor, alarms: list, run, at }: Raised & { run: Run; at: string }) {
  const last = list.at(-1) as Alarm;
  const first = list[0] as Alarm;
  const since = first.step === last.step ? `at step ${first.step}` : `steps ${first.step} to ${last.step}, ${list.length} times`;
  return (
    <article class="alarm" aria-label={monitor}>
      <header>
        <h2>{monitor.replaceAll("_", " ")}</h2>
        <span class="muted">{since}</span>
        <a class="small" href={link("curves", { runs: run.id, m: last.metric, x: `${Math.max(0, first.step - 10)}..${last.step + 10}` })}>on the curves</a>
      </header>
      <p class="alarm-message"><Visible text={last.message} /></p>
      <dl>
        {last.meaning && <Line name="meaning" text={last.meaning} />}
        <Line name={last.metric ?? "value"} text={`${number(last.value)}${last.healthy ? `; healthy: ${last.healthy}` : ""}`} />
        {last.onset !== undefined && last.onset < last.step && <Line name="since" text={`step ${last.onset}`} />}
        <Line name="likely cause" text={last.cause} />
        <Line name="what to turn" text={last.knob} code={!/\s/.test(last.knob)} />
      </dl>
      {list.length > 1 && (
        <details open={at.startsWith(`${monitor}:`)}>
          <summary>all {list.length} steps</summary>
          <table>
            <thead><tr><th scope="col">step</th><th scope="col">value</th><th scope="col">message</th></tr></thead>
            <tbody>
              {list.map((alarm) => (
                <tr id={`alarm-${monitor}:${alarm.step}`} class={at === `${monitor}:${alarm.step}` ? "chosen" : ""} key={alarm.step}>
                  <td class="num">{alarm.step}</td><td class="num">{number(alarm.value)}</td><td><Visible text={alarm.message} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </details>
      )}
    </article>
  );
}

function Line({ name, text, code = false }: { name: string; text: string; code?: boolean }) {
  if (!text) return null;
  const shown = <Visible text={text} />;
  return <div><dt class="muted">{name}</dt><dd>{code ? <code>{shown}</code> : shown}</dd></div>;
}
