/** What the colours mean, and the choice among them. */
import { BINS, colourOf, LABEL, MEANING, MODES, type Mode, type Scale, show } from "./scale.ts";

export function ColourPicker({ mode, choose }: { mode: Mode; choose: (mode: Mode) => void }) {
  return (
    <div class="segmented" role="radiogroup" aria-label="Colour tokens by">
      {MODES.map((each) => (
        <button
          type="button"
          role="radio"
          aria-checked={each === mode}
          title={MEANING[each]}
          onClick={() => choose(each)}
          key={each}
        >
          {LABEL[each]}
        </button>
      ))}
    </div>
  );
}

export function Legend({ scale }: { scale: Scale }) {
  return (
    <div class="legend" aria-live="polite">
      {scale.silence ? <span class="muted">{scale.silence}</span> : <Swatches scale={scale} />}
      {!scale.silence && <span class="muted legend-text">{MEANING[scale.mode]}</span>}
    </div>
  );
}

function Swatches({ scale }: { scale: Scale }) {
  if (scale.kind === "none") return null;
  if (scale.kind === "classes")
    return (
      <span class="swatches">
        {scale.classes.map((value) => (
          <span class="swatch-label" key={value}>
            <i class={`swatch ${colourOf(scale, value) || "swatch-empty"}`} />
            {show(scale.mode, value)}
          </span>
        ))}
      </span>
    );
  const from = scale.kind === "diverging" ? -BINS : 0;
  const steps = Array.from({ length: BINS - from + 1 }, (_, i) => ((from + i) / BINS) * scale.top);
  // The log-probability is coloured by its size, and read with its sign.
  const sign = scale.mode === "logprob" ? -1 : 1;
  const first = steps[0] as number;
  return (
    <span class="swatches">
      <b>{show(scale.mode, first * sign)}</b>
      <span class="ramp">
        {steps.map((value) => (
          <i class={`swatch ${colourOf(scale, value) || "swatch-empty"}`} title={show(scale.mode, value * sign)} key={value} />
        ))}
      </span>
      <b>{show(scale.mode, scale.top * sign)}</b>
    </span>
  );
}
