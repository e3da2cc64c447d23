// Coloured output of commands. Only colours and weights are kept; every other escape sequence is dropped, and no text
// becomes markup.
import type { JSX } from "preact";
import { visible } from "./visible";

const SEQUENCE = /\u001b\[([0-9;:]*)([A-Za-z])|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b[PX^_][^\u001b]*(?:\u001b\\)?|\u001b./gs;
const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const LONGEST = 200_000;

export function Ansi({ text }: { text: string }): JSX.Element {
  const cut = text.length > LONGEST;
  const pieces = split(cut ? text.slice(0, LONGEST) : text);
  return (
    <pre class="output" tabIndex={0} aria-label="Output">
      {pieces.map((piece, index) => (piece.style === "" ? piece.text : <span key={index} class={piece.style}>{piece.text}</span>))}
      {cut && <span class="muted">{`\n… ${text.length - LONGEST} more characters are in the raw event.`}</span>}
    </pre>
  );
}

export function split(text: string): { text: string; style: string }[] {
  const pieces: { text: string; style: string }[] = [];
  let [style, at] = [{ colour: "", bold: false, dim: false }, 0];
  const push = (end: number): void => {
    const piece = visible(text.slice(at, end).replace(/\r\n?/g, "\n"));
    const names = [style.colour, style.bold ? "ansi-bold" : "", style.dim ? "ansi-dim" : ""].filter((name) => name !== "");
    if (piece !== "") pieces.push({ text: piece, style: names.join(" ") });
  };
  for (const found of text.matchAll(SEQUENCE)) {
    push(found.index);
    at = found.index + found[0].length;
    if (found[2] === "m") style = paint(style, found[1] ?? "");
  }
  push(text.length);
  return pieces;
}

interface Style {
  colour: string;
  bold: boolean;
  dim: boolean;
}

function paint(before: Style, codes: string): Style {
  let style = before;
  for (const code of codes.split(/[;:]/).map(Number)) {
    if (code === 0) style = { colour: "", bold: false, dim: false };
    else if (code === 1) style = { ...style, bold: true };
    else if (code === 2) style = { ...style, dim: true };
    else if (code === 22) style = { ...style, bold: false, dim: false };
    else if (code === 39) style = { ...style, colour: "" };
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) style = { ...style, colour: `ansi-${COLOURS[code % 10]}` };
  }
  return style;
}
