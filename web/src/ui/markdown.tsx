// Markdown of agents, sanitised. The sanitiser returns nodes, so no text becomes markup without it. Images are shown as
// their text: a picture would tell its server that somebody reads the answer.
import DOMPurify from "dompurify";
import { Marked } from "marked";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { JSX } from "preact";
import { visible } from "./visible";

const TAGS = [
  "p", "br", "hr", "h3", "h4", "h5", "h6", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li", "a",
  "table", "thead", "tbody", "tr", "th", "td",
];
const LONGEST = 100_000;

const marked = new Marked({
  gfm: true,
  breaks: false,
  walkTokens(token) {
    // The page has its own first two levels.
    if (token.type === "heading") token.depth = Math.min(6, token.depth + 2);
  },
  renderer: {
    html: ({ text }) => escape(text),
    image: ({ text, href }) => escape(`[image: ${text || href}]`),
  },
});

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer nofollow");
  node.setAttribute("title", node.getAttribute("href") ?? "");
});

export function toNodes(text: string): DocumentFragment {
  const html = marked.parse(visible(text), { async: false });
  return DOMPurify.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ["href", "start", "align", "target", "rel", "title"],
    ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
}

export function Markdown({ text }: { text: string }): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const isLong = text.length > LONGEST;
  useLayoutEffect(() => {
    if (place.current && !isLong) {
      const nodes = toNodes(text);
      // Wide tables and code scroll, so a keyboard must reach them.
      for (const wide of nodes.querySelectorAll("pre, table")) wide.setAttribute("tabindex", "0");
      place.current.replaceChildren(nodes);
    }
  }, [text, isLong]);
  if (isLong) return <pre class="output" tabIndex={0}>{visible(text.slice(0, LONGEST))}…</pre>;
  return <div class="markdown" ref={place} />;
}

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
}
