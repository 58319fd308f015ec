/** The search box of groups and rollouts, with what it understands and what it did not. */
import { useEffect, useRef, useState } from "preact/hooks";
import { param, setParams } from "../route.ts";
import { useNarrow } from "../ui/narrow.ts";
import { FIELDS, type Parsed } from "./parse.ts";

const EXAMPLES: [string, string][] = [
  ["reward>0.5", "reward above 0.5"],
  ["step:3..7", "steps 3 to 7"],
  ["drop:any", "not trained on, for whatever reason"],
  ["drop:timeout", "not trained on because of a timeout"],
  ["zero", "in a group without a learning signal"],
  ["task:q8t5", "the task has q8t5 in its name"],
  ["env:wordle", "of that environment"],
  ["metric.exact=1", "any metric of the rollout"],
  ["turns>=3", "three turns or more"],
  ['"some text"', "the text has these words"],
];

export function QueryBox({ parsed, what }: { parsed: Parsed; what: string }) {
  const query = param("q");
  const [draft, setDraft] = useState(query);
  const [open, setOpen] = useState(false);
  // The query that this box wrote into the address: when it returns from there, the draft may already be longer.
  const written = useRef(query);
  const write = () => {
    written.current = draft;
    setParams({ q: draft || null });
  };
  useEffect(() => {
    if (query !== written.current) setDraft(query);
    written.current = query;
  }, [query]);
  useEffect(() => {
    if (draft === param("q")) return;
    const timer = setTimeout(write, 150);
    return () => clearTimeout(timer);
  }, [draft]);
  return (
    <div class="query">
      <div class="query-line">
        <input
          type="search" class="search" data-search spellcheck={false} autocomplete="off" value={draft}
          placeholder={useNarrow() ? `Filter ${what}` : `Filter ${what}: reward>0.5 step:3..7 drop:any "text"`}
          aria-label={`Filter ${what}`} aria-invalid={parsed.error !== ""} aria-describedby="query-error"
          onInput={(event) => setDraft(event.currentTarget.value)}
          onKeyDown={(event) => event.key === "Enter" && (write(), event.currentTarget.blur())}
        />
        <button type="button" class="quiet" aria-expanded={open} onClick={() => setOpen(!open)}>how to filter</button>
      </div>
      <p id="query-error" class="query-error" role="alert">{parsed.error}</p>
      {open && <QueryHelp add={(item) => setDraft(draft ? `${draft} ${item}` : item)} />}
    </div>
  );
}

function QueryHelp({ add }: { add: (item: string) => void }) {
  return (
    <div class="query-help">
      <ul>
        {EXAMPLES.map(([item, meaning]) => (
          <li key={item}><button type="button" class="code-button" onClick={() => add(item)}>{item}</button><span class="muted">{meaning}</span></li>
        ))}
      </ul>
      <p class="muted small">
        All must hold. Fields: {Object.entries(FIELDS).map(([name, meaning], i) => <span key={name} title={meaning}>{i > 0 && ", "}<code>{name}</code></span>)}, <code>metric.NAME</code>.
        Compared with <code>: = != &lt; &lt;= &gt; &gt;=</code>; a range is <code>3..7</code>.
      </p>
    </div>
  );
}
