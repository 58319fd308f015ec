/** The one way in which texts of models get into the page: as text nodes, never as markup. */
import { Fragment } from "preact";
import { visibleText } from "./visible.ts";

export function Visible({ text }: { text: string }) {
  const pieces = visibleText(text);
  if (pieces.length === 1 && typeof pieces[0] === "string") return <Fragment>{pieces[0]}</Fragment>;
  return (
    <Fragment>
      {pieces.map((piece) =>
        typeof piece === "string" ? (
          piece
        ) : (
          <span class="chip" data-raw={piece.raw} title={`${piece.code}: ${piece.name}`}>
            {piece.code}
          </span>
        ),
      )}
    </Fragment>
  );
}

/** Copies hold the raw characters, not the chips that stand for them. */
export function copyRaw(): void {
  document.addEventListener("copy", (event) => {
    const selection = getSelection();
    if (!selection?.rangeCount || !event.clipboardData) return;
    const range = selection.getRangeAt(0);
    const within = range.commonAncestorContainer;
    const element = within instanceof Element ? within : within.parentElement;
    if (!element?.closest(".raw")) return;
    const copy = range.cloneContents();
    for (const chip of copy.querySelectorAll<HTMLElement>(".chip")) chip.textContent = chip.dataset.raw || chip.textContent;
    event.clipboardData.setData("text/plain", copy.textContent ?? "");
    event.preventDefault();
  });
}
