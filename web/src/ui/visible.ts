// Foreign text made visible: characters that drive a terminal, hide text or change its order are shown as their code, so
// that a person decides about the text that is really there.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

export function visible(text: string): string {
  return text.replace(HIDDEN, (letter) => `\\u{${(letter.codePointAt(0) ?? 0).toString(16)}}`);
}

/** Like `visible`, on one line. */
export function oneLine(text: string, limit = 400): string {
  const cut = text.length > limit ? `${text.slice(0, limit)}…` : text;
  return visible(cut.replace(/\s+/g, " "));
}
