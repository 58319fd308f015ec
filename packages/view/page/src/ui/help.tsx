/** The keys, on a sheet over the page. */
import { useEffect, useRef } from "preact/hooks";
import { helpOpen, useKeys } from "../keys.ts";

const KEYS: [string[], string][] = [
  [["j", "k"], "next, previous: row, rollout or task"],
  [["Enter"], "open"],
  [["Esc"], "back; in a list, clear the filter"],
  [["["], "the step before: of the same task, where it was played again"],
  [["]"], "the step after"],
  [["/"], "search"],
  [["c"], "colour tokens by the next statistic"],
  [["←", "→"], "token by token, once one has the focus; along a chart"],
  [["?"], "these keys"],
];

export function Help() {
  const sheet = useRef<HTMLDialogElement>(null);
  useKeys({ "?": () => void (helpOpen.value = !helpOpen.value) });
  const open = helpOpen.value;
  useEffect(() => {
    if (open) sheet.current?.showModal();
    else sheet.current?.close();
  }, [open]);
  return (
    <dialog ref={sheet} class="help" aria-label="Keys" onClose={() => (helpOpen.value = false)} onClick={(event) => event.target === sheet.current && sheet.current?.close()}>
      <h2>Keys</h2>
      <dl>
        {KEYS.map(([keys, meaning]) => (
          <div key={meaning}>
            <dt>{keys.map((key) => <kbd key={key}>{key}</kbd>)}</dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <p class="muted small">The address holds everything that is shown: send it to a colleague who has the same run.</p>
      <form method="dialog"><button type="submit">Close</button></form>
    </dialog>
  );
}
