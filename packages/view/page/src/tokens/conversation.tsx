/** A rollout as a conversation: role, thought and tool call apart, each token coloured. */
import { useState } from "preact/hooks";
import { signed } from "../format.ts";
import { Visible } from "../text/chips.tsx";
import type { Part, PartKind, Rollout, Segment } from "../data/types.ts";
import { tokenHandlers } from "./hover.tsx";
import { partsOf } from "./parts.ts";
import type { Scale } from "./scale.ts";
import { SPECIAL, Tokens } from "./tokens.tsx";

interface Props {
  rollout: Rollout;
  scale: Scale;
  /** The first token that is shown: what a whole group begins with is shown once, above it. */
  from?: number;
  to?: number;
  chosen?: number;
  choose?: (t: number) => void;
}

/** Text that was only read is cut here until it is asked for. */
const LONG = 400;
const PART_LABEL: Record<PartKind, string> = { text: "", thought: "thought", tool_call: "tool call", answer: "answer" };

export function Conversation(props: Props) {
  const { rollout, from = 0, to = Infinity } = props;
  if (!rollout.tokens?.text || !rollout.segments) return <PlainMessages rollout={rollout} all={from === 0} />;
  const shown = rollout.segments.filter((segment) => !isOpening(rollout, segment) && segment.end > from && segment.begin < to);
  return (
    <div class="conversation raw" {...tokenHandlers(rollout, props.choose)}>
      {shown.map((segment) => (
        <SegmentView {...props} segment={segment} key={segment.begin} />
      ))}
    </div>
  );
}

function SegmentView({ segment, ...props }: Props & { segment: Segment }) {
  const { rollout, from = 0 } = props;
  const [open, setOpen] = useState(false);
  const reply = segment.kind === "reply";
  const [opening, begin] = reply ? [openingOf(rollout, segment), segment.begin] : templateOf(rollout, segment, from);
  const hiddenTokens = reply || open || holds(segment, props.chosen) ? 0 : segment.end - begin - LONG;
  const end = hiddenTokens > 0 ? begin + LONG : segment.end;
  return (
    <section class={`segment segment-${segment.kind}`} aria-label={segment.role || segment.kind}>
      <SegmentHead {...props} segment={segment} opening={opening} />
      <div class="segment-text">
        {reply
          ? partsOf(segment).map((part) => <PartView {...props} part={part} key={part.begin} />)
          : <Tokens rollout={rollout} begin={begin} end={end} scale={props.scale} chosen={props.chosen ?? -1} />}
        {hiddenTokens > 0 && (
          <button type="button" class="link" onClick={() => setOpen(true)}>
            show {hiddenTokens} tokens more
          </button>
        )}
      </div>
    </section>
  );
}

type Stretch = [begin: number, end: number];

/** What the chat template writes before a reply, and after the last: it is no message of its own. */
function isOpening(rollout: Rollout, { kind, role, end }: Segment): boolean {
  if (kind === "reply" || role !== "assistant") return false;
  return end === rollout.tokens?.ids.length || Boolean(rollout.segments?.some((next) => next.kind === "reply" && next.begin === end));
}

function openingOf(rollout: Rollout, segment: Segment): Stretch {
  const before = rollout.segments?.find(({ end }) => end === segment.begin);
  return before && isOpening(rollout, before) ? [before.begin, before.end] : [segment.begin, segment.begin];
}

/** The template's tokens at the beginning of a message that was read, and where its content begins. */
function templateOf(rollout: Rollout, segment: Segment, from: number): [Stretch, number] {
  const begin = Math.max(segment.begin, from);
  let [end, special] = [begin, false];
  for (; end < segment.end; end++) {
    const piece = (rollout.tokens?.text?.[end] ?? "").trim();
    special ||= SPECIAL.test(piece);
    if (piece && !SPECIAL.test(piece) && piece !== segment.role) break;
  }
  return special && end < segment.end ? [[begin, end], end] : [[begin, begin], begin];
}

const holds = (segment: Segment, chosen = -1): boolean => chosen >= segment.begin && chosen < segment.end;

function PartView({ part, rollout, scale, chosen = -1 }: Props & { part: Part }) {
  const label = PART_LABEL[part.kind];
  const kind = part.kind === "text" && isBlank(rollout, part) ? "blank" : part.kind;
  return (
    <div class={`part part-${kind}`}>
      {label && <span class="part-label">{label}</span>}
      <Tokens rollout={rollout} begin={part.begin} end={part.end} scale={scale} chosen={chosen} />
    </div>
  );
}

/** Only white space and the template's tokens: no line of its own is worth that. */
function isBlank(rollout: Rollout, part: Part): boolean {
  const pieces = rollout.tokens?.text?.slice(part.begin, part.end) ?? [];
  return pieces.every((piece) => !piece.trim() || SPECIAL.test(piece));
}

function SegmentHead({ rollout, segment, opening: [begin, end], scale, chosen = -1 }: Props & { segment: Segment; opening: Stretch }) {
  const turn = segment.kind === "reply" ? (rollout.tokens?.turn[segment.begin] ?? -1) : -1;
  const several = rollout.turn_rewards.length > 1;
  const reward = rollout.turn_rewards[turn];
  return (
    <h4 class="segment-head">
      <span class="role">{segment.role || segment.kind}</span>
      {turn >= 0 && several && <span class="muted">turn {turn + 1}</span>}
      {begin < end && <span class="template"><Tokens rollout={rollout} begin={begin} end={end} scale={scale} chosen={chosen} /></span>}
      {several && reward !== undefined && reward !== null && reward !== 0 && (
        <span class="segment-reward" title="reward of this turn">{signed(reward)}</span>
      )}
    </h4>
  );
}

/** Without tokens there are no colours, but there is something to read. */
function PlainMessages({ rollout, all }: { rollout: Rollout; all: boolean }) {
  const first = rollout.messages.findIndex((message) => message.role === "assistant");
  const messages = all || first < 0 ? rollout.messages : rollout.messages.slice(first);
  if (!messages.length) return <pre class="conversation raw segment-text"><Visible text={rollout.text} /></pre>;
  return (
    <div class="conversation raw">
      {messages.map((message, i) => (
        <section class={`segment segment-${message.role === "assistant" ? "reply" : "observation"}`} key={i}>
          <h4 class="segment-head"><span class="role">{message.role}</span></h4>
          <div class="segment-text"><Visible text={message.content} /></div>
        </section>
      ))}
    </div>
  );
}
