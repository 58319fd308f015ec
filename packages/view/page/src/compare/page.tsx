/** The same task before and after training, or in two runs. */
import { useMemo } from "preact/hooks";
import * as api from "../data/api.ts";
import { useAnswer } from "../data/fetch.ts";
import { counter, runs } from "../data/store.ts";
import type { Pair } from "../data/types.ts";
import { shortened, worded } from "../format.ts";
import { useKeys } from "../keys.ts";
import { link, param, setParams } from "../route.ts";
import { Empty, Loading, Problem } from "../ui/parts.tsx";
import { defaultPair } from "./default_pair.ts";
import { DiffView } from "./diff_view.tsx";
import { PairList, shownPairs } from "./pairs.tsx";

interface Evaluation {
  place: string; // RUN/NAME
  label: string;
  title: string; // the label in full
}

const MOST_OF_RUN = 24; // characters of its name, as the evaluation's follows

export function ComparePage() {
  const list = runs.value ?? [];
  const growth = list.map((run) => counter(run.id, "held_out")).join();
  const answer = useAnswer(`${list.map((run) => run.id).join()} ${growth}`, async () => {
    const found = await Promise.all(
      list.map(async (run) =>
        (await api.files(run.id)).held_out.map(({ name }) => ({
          place: `${run.id}/${name}`,
          label: `${shortened(run.name, MOST_OF_RUN)}: ${shortened(worded(name))}`,
          title: `${run.name}: ${worded(name)}`,
        })),
      ),
    );
    return found.flat();
  });
  const evaluations = answer.value ?? [];
  const single = param("left") && param("right") && !param("a");
  if (answer.error) return <Problem text={answer.error} />;
  if (single) return <div class="compare-single"><DiffView left={param("left")} right={param("right")} /></div>;
  if (!answer.value) return <Loading what="the evaluations" />;
  if (evaluations.length < 2)
    return (
      <Empty title="Nothing to compare yet">
        Two evaluations on held-out tasks are compared here: those before and after training, or of two runs. This page fills when the second
        has been written. Any two rollouts of a task can be compared from a <a href={link("rollouts")}>rollout</a>.
      </Empty>
    );
  return <Evaluations evaluations={evaluations} />;
}

function Evaluations({ evaluations }: { evaluations: Evaluation[] }) {
  const [first, second] = useMemo(() => {
    const environments = Object.fromEntries((runs.value ?? []).map((run) => [run.id, run.environments]));
    return defaultPair(evaluations.map(({ place }) => place), environments);
  }, [evaluations]);
  const [left, right] = [param("a", first), param("b", second)];
  const growth = [left, right].map((place) => counter(place.split("/")[0] ?? "", "held_out")).join();
  const answer = useAnswer(`${left} ${right} ${growth}`, () => api.heldOutPairs(left, right));
  const pairs = useMemo(() => shownPairs(answer.value?.pairs ?? [], param("show")), [answer.value, param("show")]);
  const complete = pairs.filter((pair) => pair.left && pair.right);
  const chosen = complete.find((pair) => pair.task === param("task")) ?? complete[0];
  const choose = (pair: Pair | undefined): void => {
    if (!pair) return;
    setParams({ a: left, b: right, task: pair.task });
    document.querySelector(`[data-pair="${CSS.escape(pair.task)}"]`)?.scrollIntoView({ block: "nearest" });
  };
  const at = chosen ? complete.indexOf(chosen) : -1;
  useKeys({ j: () => choose(complete[at + 1]), k: () => choose(complete[at - 1]) });
  const place = (name: string, row: NonNullable<Pair["left"]>): string => `${name.split("/")[0]}:${row.key}`;
  return (
    <div class="compare">
      <div class="listing-head">
        <Picker label="before" value={left} evaluations={evaluations} choose={(value) => setParams({ a: value, b: right, task: null })} />
        <span class="muted" aria-hidden="true">→</span>
        <Picker label="after" value={right} evaluations={evaluations} choose={(value) => setParams({ a: left, b: value, task: null })} />
      </div>
      <Problem text={answer.error} />
      {answer.value ? (
        <div class="compare-body">
          <PairList answer={answer.value} pairs={pairs} chosen={chosen?.task ?? ""} choose={choose} />
          {chosen?.left && chosen.right ? (
            <DiffView left={place(left, chosen.left)} right={place(right, chosen.right)} />
          ) : (
            <Empty title="No task in both">These evaluations share no task that is shown. Choose two of the same environment.</Empty>
          )}
        </div>
      ) : (
        !answer.error && <Loading what="the pairs" />
      )}
    </div>
  );
}

function Picker({ label, value, evaluations, choose }: { label: string; value: string; evaluations: Evaluation[]; choose: (value: string) => void }) {
  return (
    <label class="picker">
      <span class="visually-hidden">{label}</span>
      <select value={value} title={evaluations.find((each) => each.place === value)?.title} onChange={(event) => choose(event.currentTarget.value)}>
        {evaluations.map((each) => <option value={each.place} title={each.title} key={each.place}>{each.label}</option>)}
      </select>
    </label>
  );
}
