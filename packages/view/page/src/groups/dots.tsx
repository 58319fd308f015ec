/** The rewards of a group on one axis; equal ones are piled up. */
import { number } from "../format.ts";
import type { Num } from "../data/types.ts";

const [WIDTH, HEIGHT, RADIUS] = [180, 30, 3.4];

export function Dots({ rewards, range: [low, high] }: { rewards: Num[]; range: [number, number] }) {
  const piles = new Map<number, number>();
  const dots = rewards
    .filter((reward): reward is number => reward !== null)
    .sort((a, b) => a - b)
    .map((reward) => {
      const share = high > low ? (reward - low) / (high - low) : 0.5;
      const x = Math.round(RADIUS + 1 + share * (WIDTH - 2 * RADIUS - 2));
      const pile = Math.round(x / 4);
      const height = piles.get(pile) ?? 0;
      piles.set(pile, height + 1);
      return { x, height };
    });
  const tallest = Math.max(1, ...piles.values());
  const rise = Math.min(2 * RADIUS, (HEIGHT - 2 * RADIUS - 3) / Math.max(1, tallest - 1));
  const text = `rewards ${rewards.map((reward) => number(reward, 3)).join(", ")}`;
  return (
    <svg class="dots" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} width={WIDTH} height={HEIGHT} role="img" aria-label={text}>
      <title>{text}</title>
      <line x1="0" x2={WIDTH} y1={HEIGHT - 1.5} y2={HEIGHT - 1.5} />
      {dots.map(({ x, height }, i) => <circle cx={x} cy={HEIGHT - RADIUS - 3 - height * rise} r={RADIUS} key={i} />)}
    </svg>
  );
}
