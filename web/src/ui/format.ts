// Numbers, money and times for people.
export function money(picos: number): string {
  const dollars = picos / 1e12;
  if (dollars === 0) return "$0";
  return dollars < 0.01 ? `$${dollars.toPrecision(2)}` : `$${dollars.toFixed(2)}`;
}

export function count(value: number): string {
  if (value < 10_000) return value.toLocaleString("en");
  return value < 1e6 ? `${(value / 1e3).toFixed(1)}k` : `${(value / 1e6).toFixed(1)}M`;
}

export function age(ms: number, now: number): string {
  const seconds = Math.max(0, Math.round((now - ms) / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

export function duration(micros: number): string {
  if (micros < 1e6) return `${Math.round(micros / 1000)} ms`;
  return micros < 60e6 ? `${(micros / 1e6).toFixed(1)} s` : `${Math.floor(micros / 60e6)} min ${Math.round((micros % 60e6) / 1e6)} s`;
}

export function clock(time: string): string {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? time : date.toLocaleTimeString("en-GB");
}

export function plural(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}
