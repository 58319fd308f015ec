/** The numbers of the token under the pointer, or of the one that has the focus. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { number } from "../format.ts";
import { Visible } from "../text/chips.tsx";
import type { Rollout } from "../data/types.ts";
import { advantageAt, type Mode, show } from "./scale.ts";

interface Hovered {
  rollout: Rollout;
  t: number;
  box: DOMRect;
}

export const hovered = signal<Hovered | null>(null);

/** The token that an event is about. */
function tokenOf(event: Event): HTMLElement | null {
  return event.target instanceof Element ? event.target.closest<HTMLElement>("[data-t]") : null;
}

/** Handlers for the element around a rollout's tokens: one set for thousands of them. */
export function tokenHandlers(rollout: Rollout, choose?: (t: number) => void) {
  const show = (event: Event): void => {
    const token = tokenOf(event);
    hovered.value = token ? { rollout, t: Number(token.dataset.t), box: token.getBoundingClientRect() } : null;
  };
  const hide = (): void => {
    hovered.value = null;
  };
  return {
    onPointerOver: show,
    onPointerLeave: hide,
    onFocusIn: show,
    onFocusOut: hide,
    onClick: (event: Event) => {
      const token = tokenOf(event);
      if (!token || getSelection()?.type === "Range") return;
      focusToken(token);
      choose?.(Number(token.dataset.t));
    },
    onKeyDown: (event: KeyboardEvent) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const token = tokenOf(event);
      if (!step || !token) return;
      event.preventDefault();
      const root = event.currentTarget as HTMLElement;
      const next = neighbour(root, token, step);
      if (!next) return;
      focusToken(next);
      choose?.(Number(next.dataset.t));
    },
  };
}

function neighbour(root: HTMLElement, token: HTMLElement, step: number): HTMLElement | undefined {
  const tokens = [...root.querySelectorAll<HTMLElement>("[data-t]")];
  return tokens[tokens.indexOf(token) + step];
}

export function focusToken(token: HTMLElement): void {
  token.tabIndex = 0;
  token.focus({ preventScroll: true });
  token.scrollIntoView({ block: "nearest", inline: "nearest" });
}

export function Readout({ mode }: { mode: Mode }) {
  useEffect(() => () => void (hovered.value = null), []);
  const now = hovered.value;
  if (!now?.rollout.tokens) return null;
  const { rollout, t, box } = now;
  const below = box.bottom + 260 < innerHeight;
  const left = Math.max(8, Math.min(box.left, innerWidth - 268));
  const place = below ? { top: `${box.bottom + 8}px` } : { bottom: `${innerHeight - box.top + 8}px` };
  return (
    <div class="readout" role="status" style={{ left: `${left}px`, ...place }}>
      <Numbers rollout={rollout} t={t} mode={mode} />
    </div>
  );
}

function Numbers({ rollout, t, mode }: { rollout: Rollout; t: number; mode: Mode }) {
  const tokens = rollout.tokens;
  if (!tokens) return null;
  const sampled = Boolean(tokens.mask[t]);
  const logprob = tokens.logprob[t] ?? null;
  const lines: [string, string, Mode | ""][] = [["token", `${tokens.ids[t]} at ${t}`, ""]];
  if (sampled) {
    lines.push(["turn", String((tokens.turn[t] ?? 0) + 1), ""]);
    lines.push(["advantage", show("advantage", advantageAt(rollout, t)), "advantage"]);
    lines.push(["log-prob", logprob === null ? number(null) : `${number(logprob, 3)} (${number(100 * Math.exp(logprob), 3)}%)`, "logprob"]);
    if (tokens.log_ratio) lines.push(["ratio", show("ratio", tokens.log_ratio[t] ?? null), "ratio"]);
    if (tokens.entropy) lines.push(["entropy", show("entropy", tokens.entropy[t] ?? null), "entropy"]);
    lines.push(["version", show("version", tokens.version[t] ?? null), "version"]);
  }
  lines.push(["mask", show("mask", tokens.mask[t] ?? 0), "mask"]);
  return (
    <>
      <code class="readout-piece raw">
        <Visible text={(tokens.text?.[t] ?? "").replaceAll("\n", "↵").replaceAll(" ", "·") || "part of a character"} />
      </code>
      <dl>
        {lines.map(([name, value, of]) => (
          <div class={of === mode ? "chosen" : ""} key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}
