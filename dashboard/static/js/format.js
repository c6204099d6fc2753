// Numbers and times as people read them. No state.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes, as 1.5 MiB; a dash for what is not known. */
export function bytes(value) {
  if (value == null) return "–";
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

/** Bytes per second. */
export const rate = (value) => (value == null ? "–" : `${bytes(value)}/s`);

/** A number with separators. */
export function count(value) {
  return value == null ? "–" : Math.round(value).toLocaleString("en");
}

/** A share from 0 to 1. */
export const percent = (value) => (value == null ? "–" : `${Math.round(value * 100)} %`);

/** Microseconds. */
export function microseconds(value) {
  if (value == null) return "–";
  if (value < 1000) return `${Math.round(value)} µs`;
  return value < 1e6 ? `${(value / 1000).toFixed(1)} ms` : `${(value / 1e6).toFixed(1)} s`;
}

/** How long ago a time was, in words: a text of ISO 8601, or milliseconds since 1970. */
export function ago(time, now = Date.now()) {
  if (time == null) return "–";
  const seconds = Math.max(0, (now - new Date(time).getTime()) / 1000);
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} d ago`;
}

/** The time of day, to the millisecond, with the date if it is not today. */
export function clock(time) {
  if (time == null) return "–";
  const date = new Date(time);
  const text = date.toLocaleTimeString("en-GB") + "." + String(date.getMilliseconds()).padStart(3, "0");
  return date.toDateString() === new Date().toDateString() ? text : `${date.toLocaleDateString("en-CA")} ${text}`;
}

/** One word in the singular or the plural. */
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
