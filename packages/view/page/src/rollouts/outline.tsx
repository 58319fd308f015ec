/** The events of a conversation of several turns, each a link to its place. */
import type { Num, PartKind, Rollout } from "../data/types.ts";
import { signed } from "../format.ts";
import { Visible } from "../text/chips.tsx";

export interface Event {
  label: string;
  /** The first of its tokens. */
  at: number;
}

export interface Turn {
  events: Event[];
  reward: Num;
}

const LONGEST = 48; // characters of a tool call
const LABEL: Partial<Record<PartKind, string>> = { thought: "thought", answer: "answer" };

/** The events of each turn: the parts of the reply, and the messages read after it. */
export function turnsOf(rollout: Rollout): Turn[] {
  const turns: Turn[] = [];
  for (const { kind, role, begin, parts } of rollout.segments ?? []) {
    if (kind === "reply") {
      const marked = parts.filter((part) => part.kind !== "text").map((part) => ({ label: LABEL[part.kind] ?? callOf(rollout, part.begin, part.end), at: part.begin }));
      turns.push({ events: marked.length ? marked : [{ label: "reply", at: begin }], reward: rollout.turn_rewards[turns.length] ?? null });
    } else if (kind === "observation" && role !== "assistant") {
      turns.at(-1)?.events.push({ label: "result", at: begin });
    }
  }
  return turns;
}

/** A tool call in short: its own words, or the tool's name of one that is spelt as JSON. */
function callOf(rollout: Rollout, begin: number, end: number): string {
  const text = (rollout.tokens?.text ?? []).slice(begin, end).join("").replace(/<[^<>]*>/g, "").replace(/\s+/g, " ").trim();
  const name = /"name": ?"([^"]+)"/.exec(text)?.[1];
  const call = name ? `${name}(…)` : text || "tool call";
  return call.length > LONGEST ? `${call.slice(0, LONGEST)}…` : call;
}

const show = (at: number): void => document.querySelector(`.conversation [data-t="${at}"]`)?.scrollIntoView({ block: "start" });

export function Outline({ rollout }: { rollout: Rollout }) {
  const turns = turnsOf(rollout);
  if (turns.length < 2) return null;
  return (
    <nav class="outline" aria-label="Outline">
      <ol>
        {turns.map(({ events, reward }, i) => (
          <li key={i}>
            <span class="muted">turn {i + 1}</span>
            {events.map(({ label, at }) => (
              <button type="button" class="link" onClick={() => show(at)} key={at}><Visible text={label} /></button>
            ))}
            {reward !== null && <span class="num muted" title="reward of this turn">{signed(reward)}</span>}
          </li>
        ))}
      </ol>
    </nav>
  );
}
