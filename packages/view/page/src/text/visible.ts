/** Texts of models, with every character that a reader would not see made visible. */

export interface Hidden {
  code: string; // "U+202E"
  raw: string;
  name: string;
}

export type Piece = string | Hidden;

const NAMES: Record<number, string> = {
  0x00: "null",
  0x07: "bell",
  0x08: "backspace",
  0x0d: "carriage return",
  0x1b: "escape, begins a terminal command",
  0x7f: "delete",
  0xad: "soft hyphen",
  0x61c: "Arabic letter mark",
  0x200b: "zero-width space",
  0x200c: "zero-width non-joiner",
  0x200d: "zero-width joiner",
  0x200e: "left-to-right mark",
  0x200f: "right-to-left mark",
  0x2028: "line separator",
  0x2029: "paragraph separator",
  0x202a: "left-to-right embedding",
  0x202b: "right-to-left embedding",
  0x202c: "end of embedding",
  0x202d: "left-to-right override",
  0x202e: "right-to-left override",
  0x2060: "word joiner",
  0x2066: "left-to-right isolate",
  0x2067: "right-to-left isolate",
  0x2068: "first strong isolate",
  0x2069: "end of isolate",
  0xfeff: "byte order mark",
};

// Controls but tab and newline, everything that Unicode calls a format character or ignorable, separators of lines,
// lone surrogates, private use and noncharacters. Longer runs of combining marks would cover the lines around them.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029]|\p{Cf}|\p{Default_Ignorable_Code_Point}|\p{Cs}|\p{Co}|\p{Cn}|(?<=\p{M}{3})\p{M}/gu;
const PICTURE = /^[\p{Extended_Pictographic}\p{Emoji_Modifier}]/u;

export function visibleText(text: string): Piece[] {
  const pieces: Piece[] = [];
  let done = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (belongsToEmoji(text, match.index, match[0])) continue;
    if (match.index > done) pieces.push(text.slice(done, match.index));
    pieces.push(hidden(match[0]));
    done = match.index + match[0].length;
  }
  if (done < text.length) pieces.push(text.slice(done));
  return pieces;
}

/** A joiner between two emoji and the mark that asks for the coloured form are part of what is seen. */
function belongsToEmoji(text: string, at: number, character: string): boolean {
  const before = lastCodePoint(text.slice(Math.max(0, at - 2), at));
  if (character === "\ufe0f") return /^\p{Emoji}/u.test(before);
  if (character !== "\u200d") return false;
  return (PICTURE.test(before) || before === "\ufe0f") && PICTURE.test(text.slice(at + 1, at + 3));
}

const lastCodePoint = (text: string): string => [...text].at(-1) ?? "";

function hidden(raw: string): Hidden {
  const point = raw.codePointAt(0) ?? 0;
  return { code: `U+${point.toString(16).toUpperCase().padStart(4, "0")}`, raw, name: NAMES[point] ?? "not visible by itself" };
}
