// The life of an entity as bars over time, from its journal only: when it waited for an event or a timer, when an effect
// or a child of it was in progress, and when attempts ran.
// Rule 1: an invoke is in progress from the entry that starts it to the entry of its result, in the state that has it.
// Rule 2: a result lists its attempts only if one of them failed; otherwise only the whole time of the invoke is known.

import {asText, attrs, h} from "/static/dom.js";
import {clock, duration, number, quantity} from "/static/format.js";
import {effectName, time} from "/static/components.js";

/** Rows that are shown; the others are folded. */
const ROWS = 12;
/** Bars of a row that are closer than this share of the time become one: no screen shows the gap. */
const GAP = 0.001;
const KEY = {waiting: "waiting", progress: "effect in progress", running: "attempt ran", failed: "attempt failed"};

/** Sort intervals by start and join those that touch or overlap. */
function joined(intervals, gap = 0) {
  const found = [];
  for (const each of [...intervals].sort((one, other) => one.start - other.start)) {
    const last = found.at(-1);
    if (last && each.start <= last.end + gap) last.end = Math.max(last.end, each.end);
    else found.push({...each});
  }
  return found;
}

const total = (intervals) => joined(intervals).reduce((sum, each) => sum + each.end - each.start, 0);

/** The parts of intervals that lie within others. */
function within(intervals, bounds) {
  return intervals.flatMap((each) =>
    bounds
      .map((one) => ({...each, start: Math.max(each.start, one.start), end: Math.min(each.end, one.end)}))
      .filter((part) => part.end >= part.start),
  );
}

/** What a journal says about time: for each state its visits, and the invokes and attempts in them; and the holds. */
export function lifeOf(entries, endMs) {
  const rows = new Map();
  const open = new Map();
  const invokes = new Map();
  const held = [];
  let heldSince = null;
  const rowsIn = (state) => [...rows.values()].filter((each) => each.state === state || each.state.startsWith(`${state}.`));
  const leave = (state, end) => {
    rows.get(state).visits.push({...open.get(state), end});
    open.delete(state);
  };
  const finish = (invoke, end) => {
    for (const row of rowsIn(invoke.state)) row.invokes.push({...invoke, end});
  };
  for (const each of entries) {
    const {invokeid} = each.platform;
    const invoke = /^(done|error)\.invoke/.test(each.event) ? invokes.get(invokeid) : null;
    if (invoke) {
      invokes.delete(invokeid);
      finish(invoke, each.time_ms);
      for (const one of each.attempts) {
        const attempt = {start: one.started_ms, end: one.started_ms + one.duration_ms, number: one.number, code: one.code};
        for (const row of rowsIn(invoke.state)) row.attempts.push(attempt);
      }
    }
    for (const state of [...open.keys()]) if (!each.after.includes(state)) leave(state, each.time_ms);
    for (const state of each.after)
      if (!open.has(state)) {
        open.set(state, {start: each.time_ms, version: each.version});
        if (!rows.has(state)) rows.set(state, {state, visits: [], invokes: [], attempts: []});
      }
    for (const {type, payload} of each.effects) {
      if (type !== "invoke" || typeof payload?.state !== "string") continue; // the payload may be masked
      const before = invokes.get(payload.id);
      if (before) finish(before, each.time_ms); // its state was left before it ended
      const name = effectName({type, payload: {src: payload.src}});
      invokes.set(payload.id, {state: payload.state, start: each.time_ms, version: each.version, name});
    }
    if (each.event === "_hold" && heldSince === null) heldSince = each.time_ms;
    if (each.event === "_resume" && heldSince !== null) {
      held.push({start: heldSince, end: each.time_ms});
      heldSince = null;
    }
  }
  if (heldSince !== null) held.push({start: heldSince, end: endMs});
  for (const state of [...open.keys()]) leave(state, endMs);
  for (const each of invokes.values()) finish(each, endMs);
  for (const row of rows.values()) {
    const visits = joined(row.visits);
    row.invokes = within(row.invokes, visits);
    row.attempts = within(row.attempts, visits);
  }
  return {rows: [...rows.values()], held};
}

function summary(stayed, worked, attempts, failed) {
  if (!worked) return duration(stayed);
  const parts = [`effect ${duration(worked)}`];
  if (stayed > worked) parts.unshift(`waiting ${duration(stayed - worked)}`);
  if (attempts.length) parts.push(`${quantity(attempts.length, "attempt")}, ${number(failed)} failed`);
  return parts.join(" · ");
}

/** A card with a bar for each visit of a state, and in it the attempts that ran. `pick(version)` follows a click. */
export function timeline(entries, {nowMs, ended, shown, isComplete, pick}) {
  if (!entries.length) return null;
  const startMs = entries[0].time_ms;
  const endMs = ended ? entries.at(-1).time_ms : Math.max(nowMs, entries.at(-1).time_ms);
  const length = Math.max(1, endMs - startMs);
  const {rows, held} = lifeOf(entries, endMs);
  const cursor = entries.find((each) => each.version === shown);
  const share = (ms) => `${(100 * Math.min(1, Math.max(0, ms / length))).toFixed(3)}%`;
  const bar = (kind, each, title, act) =>
    h(
      `i.${kind}`,
      attrs({
        title,
        style: {left: `min(${share(each.start - startMs)}, calc(100% - 3px))`, width: share(each.end - each.start)},
        onclick: act,
      }),
    );
  const period = (each) => `${clock(each.start)} to ${clock(each.end)}, ${duration(each.end - each.start)}`;
  const line = (name, bars, note) =>
    h(
      "div.lane",
      h("span.name", name),
      h(
        "div.track",
        attrs({role: "img", "aria-label": `${asText(name)}: ${note}`}),
        bars,
        cursor && h("i.cursor", attrs({style: {left: share(cursor.time_ms - startMs)}})),
      ),
      h("span.sum", note),
    );
  const go = (each) => () => pick(each.version);
  const lanes = rows.map(({state, visits, invokes, attempts}) => {
    const failed = attempts.filter((each) => each.code);
    const succeeded = attempts.filter((each) => !each.code);
    const drawn = (kind, list, describe, act = () => null) =>
      joined(list, GAP * length).map((each) => bar(kind, each, `${describe(each)}, ${period(each)}`, act(each)));
    return line(
      state,
      [
        drawn("waiting", visits, () => state, go),
        drawn("progress", invokes, (each) => `${each.name} in progress`, go),
        drawn("running", succeeded, (each) => `attempt ${each.number} ✓`),
        drawn("failed", failed, (each) => `attempt ${each.number} ✗ ${each.code}`),
      ],
      summary(total(visits), total(invokes), attempts, failed.length),
    );
  });
  if (held.length)
    lanes.push(line("‖ held", held.map((each) => bar("held", each, `held, ${period(each)}`)), duration(total(held))));
  const worked = total(rows.flatMap((each) => each.invokes));
  return [
    h(
      "header.row",
      h("h2", "Timeline"),
      h("span.muted", `waiting ${duration(length - worked)}, effects in progress ${duration(worked)}`),
      h("span.grow"),
      h(
        "ul.key",
        Object.entries(KEY).map(([kind, label]) => h("li", h(`i.${kind}`), label)),
      ),
    ),
    lanes.slice(0, ROWS),
    lanes.length > ROWS &&
      h("details.rest", h("summary", `${number(lanes.length - ROWS)} more states`), lanes.slice(ROWS)),
    h("div.axis", time(startMs), ended ? time(endMs) : h("span", "now")),
    !isComplete && h("p.muted", `From version ${number(entries[0].version)}, the oldest that is loaded.`),
  ];
}
