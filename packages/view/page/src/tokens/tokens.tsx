/** The tokens of a stretch of a rollout, coloured. */
import { Fragment } from "preact";
import { memo } from "./memo.ts";
import { Visible } from "../text/chips.tsx";
import type { Rollout } from "../data/types.ts";
import { colourOf, type Scale, valueAt } from "./scale.ts";

interface Props {
  rollout: Rollout;
  begin: number;
  end: number;
  scale: Scale;
  chosen: number;
}

/** A token that a chat template writes, as <|im_start|>. */
export const SPECIAL = /^<[|｜][^<>]{1,40}[|｜]>$/;

/** A tag in a reply, such as <answer>: lines are broken before or behind it, not in it. */
const TAG = /<\/?[A-Za-z_][\w-]{0,40}>/g;

interface Breaks {
  /** Where tags begin and end, in characters of the stretch. */
  edges: Set<number>;
  /** Behind the slash of a tag, where a browser would break. */
  slashes: Set<number>;
}

function breaksOf(text: string): Breaks {
  const tags = [...text.matchAll(TAG)].map(({ 0: tag, index }): [string, number] => [tag, index]);
  return {
    edges: new Set(tags.flatMap(([tag, at]) => [at, at + tag.length])),
    slashes: new Set(tags.filter(([tag]) => tag[1] === "/").map(([, at]) => at + 2)),
  };
}

/** The places at which a token is cut, as it holds the edge of a tag and other characters. */
function cutsOf(text: string, place: number, edges: Set<number>): number[] {
  const cuts = [0];
  for (let i = 1; i < text.length; i++) if (edges.has(place + i)) cuts.push(i);
  return cuts;
}

/** Drawn again only if something changed: a long rollout has thousands. */
export const Tokens = memo(function Tokens({ rollout, begin, end, scale, chosen }: Props) {
  const tokens = rollout.tokens;
  if (!tokens?.text) return null;
  const spans = [];
  const { edges, slashes } = breaksOf(tokens.text.slice(begin, end).join(""));
  let place = 0; // of the token in the stretch's text
  let entry = true; // the tabulator stops once in a stretch; the arrow keys go on from there
  for (let t = begin; t < end; t++) {
    const text = tokens.text[t] ?? "";
    const sampled = Boolean(tokens.mask[t]);
    const classes = ["t", colourOf(scale, valueAt(rollout, scale.mode, t))];
    if (!text) classes.push("t-part");
    if (SPECIAL.test(text)) classes.push("t-special");
    if (text.includes("</")) classes.push("t-whole");
    if (text.includes("\n")) classes.push("t-newline");
    if (t === chosen) classes.push("t-chosen");
    if (slashes.has(place)) classes.push("t-joined");
    if (t > begin && edges.has(place)) spans.push(<wbr key={`before ${t}`} />);
    const cuts = cutsOf(text, place, edges);
    place += text.length;
    spans.push(
      <span class={classes.filter(Boolean).join(" ")} data-t={t} tabIndex={entry && sampled ? 0 : undefined} key={t}>
        {cuts.map((from, i) => <Fragment key={from}>{i > 0 && <wbr />}<Visible text={text.slice(from, cuts[i + 1])} /></Fragment>)}
      </span>,
    );
    if (sampled) entry = false;
  }
  return <>{spans}</>;
}, ["rollout", "begin", "end", "scale", "chosen"]);
