/** What is known of a rollout beside its text. */
import { NONE, number, signed, worded } from "../format.ts";
import { link } from "../route.ts";
import { type Rollout, type Row, type Run } from "../data/types.ts";
import { STOP } from "../groups/column.tsx";
import { Visible } from "../text/chips.tsx";
import { useNarrow } from "../ui/narrow.ts";
import { Signed } from "../ui/parts.tsx";
import { TaskData } from "../ui/task_data.tsx";
import { Outline } from "./outline.tsx";

const MOST = 40; // other times that are listed

export function Facts({ run, rollout, others }: { run: Run; rollout: Rollout; others: Row[] }) {
  const metrics = Object.entries(rollout.metrics);
  return (
    <aside class="rollout-facts">
      <div class="big-numbers">
        <div><b>{number(rollout.reward, 3)}</b><span class="muted small">reward</span></div>
        <div><b><Signed value={rollout.advantage} /></b><span class="muted small">advantage</span></div>
      </div>
      {!useNarrow() && <Outline rollout={rollout} />}
      {rollout.drop && (
        <p class="problem">
          Not trained on: {rollout.drop}. <Visible text={rollout.failure_detail} />
        </p>
      )}
      <dl class="facts-list">
        <Fact name="ended" value={STOP[rollout.stop] ?? rollout.stop} />
        <Fact name="turns" value={number(rollout.turns)} />
        <Fact name="tokens sampled" value={rollout.num_tokens ? number(rollout.num_sampled) : "not recorded"} />
        <Fact name="tokens in all" value={number(rollout.num_tokens || null)} />
        <Fact name="tool calls" value={number(rollout.tool_calls)} />
        <Fact name="weights" value={rollout.version === null ? number(null) : `version ${rollout.version}`} />
      </dl>
      <TaskData data={rollout.task_data} />
      {rollout.turn_rewards.length > 1 && <Turns rollout={rollout} />}
      {metrics.length > 0 && (
        <>
          <h2>Metrics</h2>
          <dl class="facts-list">{metrics.map(([name, value]) => <Fact name={name} value={number(value)} key={name} />)}</dl>
        </>
      )}
      {others.length > 0 && <Others run={run} rollout={rollout} others={others} />}
    </aside>
  );
}

/** What a rollout is called where the task is known. */
function nameOf(row: Row): string {
  const file = row.file;
  return file === "train" ? `step ${row.step ?? NONE}, line ${row.line}` : worded(file.replace("held_out/", ""));
}

function Fact({ name, value }: { name: string; value: string }) {
  return <div><dt class="muted">{name}</dt><dd>{value}</dd></div>;
}

function Turns({ rollout }: { rollout: Rollout }) {
  return (
    <>
      <h2>Turns</h2>
      <table class="turns">
        <thead><tr><th scope="col">turn</th><th scope="col">reward</th><th scope="col">advantage</th></tr></thead>
        <tbody>
          {rollout.turn_rewards.map((reward, i) => (
            <tr key={i}><td>{i + 1}</td><td>{signed(reward)}</td><td><Signed value={rollout.advantages[i] ?? null} /></td></tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

/** The same task at other steps and in the evaluations: to be compared with. */
function Others({ run, rollout, others }: { run: Run; rollout: Rollout; others: Row[] }) {
  const here = `${run.id}:${rollout.key}`;
  const before = (row: Row): boolean => (row.step ?? 0) < (rollout.step ?? 0);
  return (
    <>
      <h2>Compare with the same task</h2>
      <ul class="others">
        {others.slice(0, MOST).map((row) => {
          const there = `${run.id}:${row.key}`;
          const [left, right] = before(row) ? [there, here] : [here, there];
          return (
            <li key={row.key}>
              <a href={link("compare", { left, right })}>{nameOf(row)}</a>
              <span class="num">{number(row.reward, 3)}</span>
            </li>
          );
        })}
      </ul>
      {others.length > MOST && <p class="muted small">and {others.length - MOST} more</p>}
    </>
  );
}
