/** A list of any length: only the rows in sight are in the page, and only their pages are fetched. */
import { signal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const PAGE = 100;
const MARGIN = 8; // rows drawn beyond the edges

export interface Page<T> {
  items: T[];
  matched: number;
}

/** The fetched pages of a listing. */
export class Pages<T> {
  readonly matched: Signal<number | null> = signal(null);
  readonly problem: Signal<string> = signal("");
  readonly arrivals: Signal<number> = signal(0);
  private readonly pages = new Map<number, T[] | "asked">();

  constructor(private readonly fetch: (offset: number, limit: number) => Promise<Page<T>>) {}

  get(index: number): T | undefined {
    const page = this.pages.get(Math.floor(index / PAGE));
    return page === undefined || page === "asked" ? undefined : page[index % PAGE];
  }

  /** The first page, or what stands in its way. */
  first(): Promise<void> {
    return this.load(0);
  }

  want(first: number, last: number): void {
    for (let page = Math.floor(first / PAGE); page <= Math.floor(last / PAGE); page++) if (!this.pages.has(page)) void this.load(page);
  }

  private async load(page: number): Promise<void> {
    this.pages.set(page, "asked");
    try {
      const { items, matched } = await this.fetch(page * PAGE, PAGE);
      this.pages.set(page, items);
      this.matched.value = matched;
      this.problem.value = "";
    } catch (error) {
      this.pages.delete(page);
      this.problem.value = (error as Error).message;
    }
    this.arrivals.value += 1;
  }
}

interface Props<T> {
  pages: Pages<T>;
  rowHeight: number;
  chosen: number;
  label: string;
  row: (item: T, index: number) => ComponentChildren;
}

export function VirtualList<T>({ pages, rowHeight, chosen, label, row }: Props<T>) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const count = pages.matched.value ?? 0;
  pages.arrivals.value; // rows are drawn again as they arrive
  const first = Math.max(0, Math.floor(view.top / rowHeight) - MARGIN);
  const last = Math.min(count - 1, Math.ceil((view.top + view.height) / rowHeight) + MARGIN);

  useLayoutEffect(() => {
    const element = box.current as HTMLDivElement;
    const look = (): void => setView({ top: element.scrollTop, height: element.clientHeight });
    const watcher = new ResizeObserver(look);
    watcher.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    look();
    return () => {
      watcher.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, []);
  useEffect(() => pages.want(first, Math.max(first, last)), [pages, first, last]);
  useEffect(() => reveal(box.current, chosen, rowHeight), [chosen]);

  const rows = [];
  for (let index = first; index <= last; index++) {
    const item = pages.get(index);
    const state = index === chosen ? "list-line chosen" : "list-line";
    rows.push(
      <div role="row" aria-rowindex={index + 1} class={state} style={{ top: `${index * rowHeight}px`, height: `${rowHeight}px` }} key={index}>
        {item === undefined ? <span class="list-line-waiting" /> : row(item, index)}
      </div>,
    );
  }
  return (
    <div class="virtual" ref={box} role="grid" aria-label={label} aria-rowcount={count} tabIndex={-1}>
      <div style={{ height: `${count * rowHeight}px` }}>{rows}</div>
    </div>
  );
}

function reveal(box: HTMLDivElement | null, index: number, height: number): void {
  if (!box || index < 0) return;
  const top = index * height;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + height > box.scrollTop + box.clientHeight) box.scrollTop = top + height - box.clientHeight;
}
