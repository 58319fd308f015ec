/** A rollout as one of several columns. */
import { number, plural } from "../format.ts";
import { link } from "../route.ts";
import type { Rollout, Row } from "../data/types.ts";
import { Conversation } from "../tokens/conversation.tsx";
import type { Scale } from "../tokens/scale.ts";
import { Bar, Problem, Signed, Tag } from "../ui/parts.tsx";

interface Props {
  run: string;
  row: Row;
  rollout: Rollout | undefined;
  problem: string;
  scale: Scale;
  from: number;
  place: number;
  focused: boolean;
  range: [number, number];
  choose: () => void;
}

export const STOP: Record<string, string> = {
  done: "the environment ended it",
  max_turns: "no turn left",
  context_full: "no room left in the context",
  failed: "failed",
};

export function Column(props: Props) {
  const { row, rollout, focused, place, range } = props;
  const href = link("rollout", { run: props.run, key: row.key, color: props.scale.mode });
  return (
    <article class={focused ? "column focused" : "column"} data-column={place} aria-label={`Rollout ${place + 1}, reward ${number(row.reward)}`} onClick={props.choose}>
      <header class="column-head">
        <div class="column-title">
          <a href={href} title="Open this rollout alone">{place + 1}</a>
          <span class="column-reward" title="reward">{number(row.reward, 3)}</span>
          <span title="mean advantage" class="column-advantage"><Signed value={row.advantage} /></span>
          <span class="column-tags">
            {row.drop && <Tag kind="drop" title={`Not trained on. ${rollout?.failure_detail ?? ""}`}>{row.drop}</Tag>}
          </span>
        </div>
        <Bar value={row.reward} low={range[0]} high={range[1]} />
        <p class="muted small">
          {row.turns !== 1 && <>{plural(row.turns, "turn")} · </>}{plural(row.tokens, "token")}{row.tool_calls > 0 && <> · {plural(row.tool_calls, "tool call")}</>}
          {" · "}<span title={STOP[row.stop] ?? ""}>{row.stop}</span>
        </p>
      </header>
      <Problem text={props.problem} />
      {rollout ? <Conversation rollout={rollout} scale={props.scale} from={props.from} /> : !props.problem && <p class="muted loading">Reading …</p>}
    </article>
  );
}
