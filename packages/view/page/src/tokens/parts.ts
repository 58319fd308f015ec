/** How a reply is divided. */
import type { Part, Segment } from "../data/types.ts";

/** The parts of a reply, with the text between those that are marked. */
export function partsOf(segment: Segment): Part[] {
  const parts: Part[] = [];
  let done = segment.begin;
  for (const part of segment.parts) {
    if (part.begin > done) parts.push({ begin: done, end: part.begin, kind: "text" });
    parts.push(part);
    done = part.end;
  }
  if (done < segment.end) parts.push({ begin: done, end: segment.end, kind: "text" });
  return parts;
}
