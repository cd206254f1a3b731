// Numbers, times and names as text.

const UNITS = [
  [86400000, "d"],
  [3600000, "h"],
  [60000, "m"],
  [1000, "s"],
];

/** A duration in its two largest units: `2d 4h`, `12m 41s`, `80ms`. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "—";
  if (ms < 0) ms = 0;
  if (ms < 1000) return `${Math.round(ms)}ms`;
  let left = Math.floor(ms / 1000) * 1000;
  const parts = [];
  for (const [size, unit] of UNITS) {
    if (left >= size || parts.length) {
      const count = Math.floor(left / size);
      if (count || !parts.length) parts.push(`${count}${unit}`);
      left -= count * size;
      if (parts.length === 2 || (parts.length && !left)) break;
    }
  }
  return parts.join(" ");
}

/** A limit in one unit: `10m`, `6h`, `7d`. */
export function limit(ms) {
  if (ms === null || ms === undefined) return "—";
  for (const [size, unit] of UNITS) if (ms >= size && ms % size === 0) return `${ms / size}${unit}`;
  return duration(ms);
}

const whole = new Intl.NumberFormat("en");
export const number = (value) => whole.format(value);

/** A short number: `812`, `100k`, `2.0M`. */
export function short(value) {
  if (value < 10000) return number(value);
  if (value < 999500) return `${Math.round(value / 1000)}k`;
  return `${(value / 1e6).toFixed(value < 99.5e6 ? 1 : 0)}M`;
}

/** Look up a name that may come from data; undefined for inherited names such as `constructor`. */
export const lookup = (table, name) => (Object.hasOwn(table, name) ? table[name] : undefined);

/** A count with its noun. */
export function quantity(total, one, more = `${one}s`) {
  return `${number(total)} ${total === 1 ? one : more}`;
}

/** A date and time of day where the reader is, with its zone: `2026-11-19 14:02:11 +01:00`. */
export function clock(ms) {
  const minutes = -new Date(ms).getTimezoneOffset();
  const there = new Date(ms + minutes * 60000).toISOString().slice(0, 19).replace("T", " ");
  if (!minutes) return `${there} UTC`;
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  const [far, sign] = [Math.abs(minutes), minutes < 0 ? "-" : "+"];
  return `${there} ${sign}${two(far / 60)}:${two(far % 60)}`;
}

export const iso = (ms) => new Date(ms).toISOString();

/** Whether the entities in a state have ended. */
export const isEnded = (state) => state.type === "final" || state.type === "ended";

/** The name of a state in a table; entities that ended without a final state have a state such as `:cancelled`. */
export function stateName(state) {
  if (state.type === "ended") return state.id.slice(1);
  return state.type === "removed" ? `${state.id} (removed)` : state.id.split(".").pop();
}

/** A revision in few characters: its label, such as `3.1.0`; otherwise the start of its name, such as `b1.8f9a1e1e`. */
export const revision = (text, label = "") =>
  label || (text ? (text.startsWith("b1.") ? text.slice(0, 11) : text.split("+")[0] || text) : "—");

export const entityPath = (name) => `/e/${name.split("/").map(encodeURIComponent).join("/")}`;
export const kindPath = (kind, rest = "") => `/k/${encodeURIComponent(kind)}${rest}`;
export const apiPath = (name) => name.split("/").map(encodeURIComponent).join("/");
