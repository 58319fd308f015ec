/** The keyboard: a page says what its keys do while it is shown. */
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

export type Keys = Partial<Record<"j" | "k" | "Enter" | "Escape" | "/" | "c" | "[" | "]" | "?", () => void>>;

const layers: { current: Keys }[] = [];
export const helpOpen = signal(false);

/** Bind keys for as long as the component is shown; the component shown last is asked first. */
export function useKeys(keys: Keys): void {
  const layer = useRef(keys);
  layer.current = keys;
  useEffect(() => {
    layers.push(layer);
    return () => {
      layers.splice(layers.indexOf(layer), 1);
    };
  }, []);
}

const typing = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable);

function press(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const { key, target } = event;
  if (typing(target)) {
    if (key === "Escape") (target as HTMLElement).blur();
    return;
  }
  // Under the sheet nothing moves; Escape closes it by itself.
  if (helpOpen.value && key !== "?") return;
  // Enter on a link or button is the browser's own.
  if (key === "Enter" && target instanceof HTMLElement && target.closest("a, button, summary")) return;
  const layer = [...layers].reverse().find(({ current }) => key in current);
  const action = layer?.current[key as keyof Keys];
  if (!action) return;
  event.preventDefault();
  action();
}

export function listen(): void {
  addEventListener("keydown", press);
}

/** Put the cursor into the page's search box. */
export function focusSearch(): void {
  const box = document.querySelector<HTMLInputElement>("[data-search]");
  box?.focus();
  box?.select();
}
