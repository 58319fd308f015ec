/** What changed between two rollouts of a task, message by message. */
import { diffLines, diffWordsWithSpace } from "diff";
import type { Message, Rollout } from "../data/types.ts";

export interface Change {
  kind: "same" | "added" | "removed";
  text: string;
}

export interface MessagePair {
  role: string;
  left: string | null;
  right: string | null;
  changes: Change[];
}

const PATIENCE_MS = 300;

/** Word by word; line by line where that would take too long, and as a whole where that would too. */
export function wordChanges(left: string, right: string): Change[] {
  if (left === right) return left ? [{ kind: "same", text: left }] : [];
  const options = { timeout: PATIENCE_MS };
  const parts = diffWordsWithSpace(left, right, options) ?? diffLines(left, right, options);
  if (!parts) return [{ kind: "removed", text: left }, { kind: "added", text: right }];
  return parts.map(({ value, added, removed }) => ({ kind: added ? "added" : removed ? "removed" : "same", text: value }));
}

const textOf = (message: Message): string =>
  message.reasoning_content ? `${message.reasoning_content}\n\n${message.content}` : message.content;

const messagesOf = (rollout: Rollout): Message[] =>
  rollout.messages.length ? rollout.messages : [{ role: "text", content: rollout.text }];

export function messagePairs(left: Rollout, right: Rollout): MessagePair[] {
  const [ones, twos] = [messagesOf(left), messagesOf(right)];
  const pairs: MessagePair[] = [];
  for (let i = 0; i < Math.max(ones.length, twos.length); i++) {
    const [one, two] = [ones[i], twos[i]];
    if (one && two && one.role !== two.role) {
      pairs.push(pairOf(one, undefined), pairOf(undefined, two));
      continue;
    }
    pairs.push(pairOf(one, two));
  }
  return pairs;
}

function pairOf(one: Message | undefined, two: Message | undefined): MessagePair {
  const [left, right] = [one ? textOf(one) : null, two ? textOf(two) : null];
  return { role: (one ?? two)?.role ?? "", left, right, changes: wordChanges(left ?? "", right ?? "") };
}
