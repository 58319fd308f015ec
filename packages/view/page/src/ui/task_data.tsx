/** The data of a task, such as its question and the right answer, as text. */
import { Visible } from "../text/chips.tsx";

interface Props {
  data: Record<string, unknown> | undefined;
}

export function TaskData({ data = {} }: Props) {
  const entries = Object.entries(data);
  if (!entries.length) return null;
  return (
    <details class="task-data" open>
      <summary>Task</summary>
      <dl>
        {entries.map(([name, value]) => (
          <div key={name}>
            <dt class="muted"><Visible text={name} /></dt>
            <dd class="raw" tabIndex={0}><Visible text={typeof value === "string" ? value : JSON.stringify(value)} /></dd>
          </div>
        ))}
      </dl>
    </details>
  );
}
