// Numbers and times as people read them.

export function count(value: number): string {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return trim(value / 1e6) + " M";
  if (size >= 1e4) return trim(value / 1e3) + " k";
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en-GB");
  return trim(value);
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value < 1000) return `${Math.round(value)} B`;
  if (value < 1e6) return `${trim(value / 1e3)} kB`;
  if (value < 1e9) return `${trim(value / 1e6)} MB`;
  return `${trim(value / 1e9)} GB`;
}

export function ms(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value < 1) return value === 0 ? "0 ms" : "<1 ms";
  if (value < 1000) return `${Math.round(value)} ms`;
  if (value < 60_000) return `${trim(value / 1000)} s`;
  return `${trim(value / 60_000)} min`;
}

export function seconds(value: number): string {
  return ms(1000 * value);
}

export function ago(thenMs: number, nowMs: number): string {
  const seconds = Math.max(0, Math.round((nowMs - thenMs) / 1000));
  if (seconds < 2) return "now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  return `${Math.floor(seconds / 3600)} h ago`;
}

export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** A measured value in the words of its unit. */
export function quantity(value: number, unit: string | null | undefined): string {
  if (unit === "ms") return ms(value);
  if (unit === "bytes" || unit === "B") return bytes(value);
  return unit ? `${count(value)} ${unit}` : count(value);
}

/** A cell of a result: short, and times as times of day. */
export function cell(value: unknown): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : trim(value);
  if (Array.isArray(value)) return value.map(cell).join(", ");
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  const time = /^\d{4}-\d\d-\d\d[T ](\d\d:\d\d:\d\d)/.exec(text);
  return time ? time[1] : text;
}

function trim(value: number): string {
  const size = Math.abs(value);
  const text = value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}
