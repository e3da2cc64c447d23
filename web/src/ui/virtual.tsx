// A list that draws only the rows in view, for rows of different heights. Heights are estimated, then measured; a measured row
// above the view moves the scroll position with it, so that the text under the eye stays.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useReducer, useRef } from "preact/hooks";

const BEYOND_PX = 600;

interface Props<T> {
  rows: T[];
  keyOf: (row: T) => string;
  estimate: (row: T) => number;
  render: (row: T, index: number) => ComponentChildren;
  /** Keeps the end in view while rows are added. */
  followEnd: boolean;
  onFollow: (follows: boolean) => void;
  /** The index to scroll to, when it changes. */
  target: number | null;
  label: string;
}

export function Virtual<T>(props: Props<T>): JSX.Element {
  const { rows, keyOf, estimate, followEnd, onFollow, target } = props;
  const box = useRef<HTMLDivElement>(null);
  const heights = useRef(new Map<string, number>());
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  const observer = useRef<ResizeObserver | null>(null);
  const offsets = offsetsOf(rows, (row) => heights.current.get(keyOf(row)) ?? estimate(row));
  const total = offsets[rows.length] ?? 0;
  const top = box.current?.scrollTop ?? (followEnd ? total : 0);
  const view = box.current?.clientHeight ?? 900;
  const start = followEnd && !box.current ? find(offsets, Math.max(0, total - view - BEYOND_PX)) : find(offsets, Math.max(0, top - BEYOND_PX));
  const end = Math.min(rows.length, find(offsets, (followEnd ? Math.max(top, total - view) : top) + view + BEYOND_PX) + 1);

  if (!observer.current && typeof ResizeObserver !== "undefined") {
    observer.current = new ResizeObserver((entries) => {
      let [moved, changed] = [0, false];
      const from = box.current?.getBoundingClientRect().top ?? 0;
      for (const entry of entries) {
        const element = entry.target as HTMLElement;
        const key = element.dataset.key ?? "";
        const height = element.offsetHeight;
        const before = heights.current.get(key) ?? Number(element.dataset.estimate);
        if (height === 0 || before === height) continue;
        heights.current.set(key, height);
        changed = true;
        if (element.getBoundingClientRect().bottom < from) moved += height - before;
      }
      if (!changed) return;
      if (moved !== 0 && box.current) box.current.scrollTop += moved;
      redraw(0);
    });
  }
  useEffect(() => () => observer.current?.disconnect(), []);
  useLayoutEffect(() => {
    if (followEnd && box.current) box.current.scrollTop = box.current.scrollHeight;
  });
  useLayoutEffect(() => redraw(0), []);
  useLayoutEffect(() => {
    if (target === null || !box.current) return;
    box.current.scrollTop = Math.max(0, (offsets[target] ?? 0) - 80);
    redraw(0);
  }, [target]);

  const onScroll = (): void => {
    const place = box.current;
    if (!place) return;
    const atEnd = place.scrollHeight - place.scrollTop - place.clientHeight < 8;
    if (atEnd !== followEnd && !(followEnd && rows.length === 0)) onFollow(atEnd);
    redraw(0);
  };
  return (
    <div class="virtual" ref={box} onScroll={onScroll} tabIndex={0} role="region" aria-label={props.label}>
      <div style={{ height: `${total}px`, position: "relative" }}>
        <div class="virtual-rows" style={{ transform: `translateY(${offsets[start] ?? 0}px)` }}>
          {rows.slice(start, end).map((row, index) => (
            <Measured key={keyOf(row)} id={keyOf(row)} estimate={estimate(row)} observer={observer.current}>
              {props.render(row, start + index)}
            </Measured>
          ))}
        </div>
      </div>
    </div>
  );
}

function Measured(props: { id: string; estimate: number; observer: ResizeObserver | null; children: ComponentChildren }): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = place.current;
    if (element) props.observer?.observe(element);
    return () => {
      if (element) props.observer?.unobserve(element);
    };
  }, [props.observer]);
  return (
    <div ref={place} data-key={props.id} data-estimate={props.estimate} class="virtual-row">
      {props.children}
    </div>
  );
}

function offsetsOf<T>(rows: T[], height: (row: T) => number): Float64Array {
  const offsets = new Float64Array(rows.length + 1);
  for (let index = 0; index < rows.length; index += 1) offsets[index + 1] = (offsets[index] ?? 0) + height(rows[index] as T);
  return offsets;
}

/** Returns the last row that starts at or before `at`. */
function find(offsets: Float64Array, at: number): number {
  let [low, high] = [0, offsets.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((offsets[middle] ?? 0) <= at) low = middle;
    else high = middle - 1;
  }
  return low;
}
