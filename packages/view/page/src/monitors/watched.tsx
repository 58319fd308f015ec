/** Every monitor with its present value and the bounds beside it. */
import * as api from "../data/api.ts";
import { useAnswer } from "../data/fetch.ts";
import { counter } from "../data/store.ts";
import type { Run, Watched } from "../data/types.ts";
import { number } from "../format.ts";
import { link } from "../route.ts";
import { Problem, Tag } from "../ui/parts.tsx";

export function WatchedMonitors({ run }: { run: Run }) {
  const answer = useAnswer(`${run.id} ${counter(run.id, "metrics")}`, () => api.watched(run.id));
  if (!answer.value) return <Problem text={answer.error} />;
  return (
    <section class="watched" aria-label="All monitors">
      <h2>Present values</h2>
      <table>
        <thead><tr><th scope="col">monitor</th><th scope="col">now</th><th scope="col">healthy</th></tr></thead>
        <tbody>{answer.value.monitors.map((each) => <WatchedRow {...each} run={run} key={each.monitor} />)}</tbody>
      </table>
    </section>
  );
}

function WatchedRow({ run, ...watched }: Watched & { run: Run }) {
  const { monitor, meaning, healthy, metric, bounds } = watched;
  return (
    <tr title={meaning}>
      <th scope="row">{monitor.replaceAll("_", " ")} {watched.raised && <Tag kind="drop">raised</Tag>}</th>
      <td>
        {watched.off ? <span class="muted">off</span> : <b title={metric ? "" : "It needs metrics or steps that the run does not have yet."}>{number(watched.value, 3)}</b>}
        {metric && <> <a class="small" href={link("curves", { runs: run.id, m: metric })}>{metric}</a> <span class="muted small">step {watched.step}</span></>}
      </td>
      <td>
        <Healthy text={healthy} />
        <span class="bounds muted small">{bounds.map(([name, bound]) => <span key={name}>{name} = {number(bound)}</span>)}</span>
      </td>
    </tr>
  );
}

/** The words of the catalogue, in which names of metrics stand between backquotes. */
function Healthy({ text }: { text: string }) {
  return <span>{text.split("`").map((words, i) => (i % 2 ? <code key={i}>{words}</code> : words))}</span>;
}
