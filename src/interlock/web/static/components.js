// Shared components: tables, ages, sparklines, JSON differences, forms from schemas, dialogs.

import {may, post} from "/static/api.js";
import {asText, attrs, change, fill, h, toast} from "/static/dom.js";
import {clock, duration, entityPath, iso, lookup, number} from "/static/format.js";

/** A duration that is updated every second: since a time, or until one. */
class Age extends HTMLElement {
  connectedCallback() {
    this.timer = setInterval(() => this.update(), 1000);
    this.update();
  }
  disconnectedCallback() {
    clearInterval(this.timer);
  }
  update() {
    const since = Number(this.getAttribute("since"));
    const until = Number(this.getAttribute("until"));
    const text = since
      ? duration(Date.now() - since)
      : until > Date.now()
        ? `in ${duration(until - Date.now())}`
        : `overdue by ${duration(Date.now() - until)}`;
    if (text !== this.textContent) this.textContent = text;
  }
}
customElements.define("il-age", Age);

export const age = (ms) => h("il-age", attrs({since: ms, title: iso(ms)}));
export const until = (ms) => h("il-age", attrs({until: ms, title: iso(ms)}));
export const time = (ms) => h("time", attrs({datetime: iso(ms), title: iso(ms)}), clock(ms));
export const entityLink = (name) => h("a.mono", attrs({href: entityPath(name)}), name);

/** State names as labels. */
export const states = (names) => names.map((each) => h("span.state", each));

/** A state name that can break after an underscore or a dot. */
export const breakable = (name) => name.split(/(?<=[_.])/).map((part) => [part, h("wbr")]);

/** A list whose first items are shown; the others are folded. */
export function foldedList(items, one, more = `${one}s`, limit = 8) {
  if (items.length <= limit + 1) return h("ul.plain", items);
  return h(
    "div",
    h("ul.plain", items.slice(0, limit)),
    h("details.rest", h("summary", `${number(items.length - limit)} more ${more}`), h("ul.plain", items.slice(limit))),
  );
}

/**
 * A table with headings (a text, or [text, class]) and rows. In a narrow window the cells of a `flow` table wrap like
 * words, those of a heading with a class after its text; other tables keep their columns.
 */
export function table(label, heads, rows, empty = "None", shape = "flow") {
  if (!rows.length) return h("p.empty", empty);
  for (const one of rows)
    heads.forEach((each, at) => Array.isArray(each) && each[0] && change(one.cells[at], {"data-label": each[0]}));
  const head = heads.map((each) =>
    Array.isArray(each) ? h("th", attrs({class: each[1], scope: "col"}), each[0]) : h("th", attrs({scope: "col"}), each),
  );
  return h("div.scroll", h("table", attrs({"aria-label": label, class: shape}), h("thead", h("tr", head)), h("tbody", rows)));
}

export const row = (...cells) =>
  h(
    "tr",
    cells.map((each) => (each instanceof HTMLTableCellElement ? each : h("td", each))),
  );
export const num = (value) => h("td.num", value);

/** The steps of the last hour, one bar per minute. */
export function spark(minutes, nowMs) {
  const [wide, high] = [150, 24];
  const last = Math.floor(nowMs / 60000);
  const steps = new Map(minutes.map((each) => [each.minute_ms / 60000, each.steps]));
  const values = Array.from({length: 60}, (_, at) => steps.get(last - 59 + at) || 0);
  const most = Math.max(1, ...values);
  const bars = values.map((value, at) => {
    const tall = 1 + ((high - 1) * value) / most;
    return `M${(at + 0.5) * 2.5} ${high}v-${tall.toFixed(1)}`;
  });
  const sum = values.reduce((one, other) => one + other, 0);
  const label = `${number(sum)} steps in the last hour`;
  return h(
    "svg.spark",
    attrs({
      viewBox: `0 0 ${wide} ${high}`,
      width: wide,
      height: high,
      role: "img",
      "aria-label": label,
    }),
    h("title", label),
    h("path", attrs({d: bars.join("")})),
  );
}

/** Steps per second as text; a store without counters has none. */
export function rate(value) {
  if (value === null) return "—";
  return value >= 100 ? number(Math.round(value)) : value >= 0.05 ? value.toFixed(1) : "0";
}

// JSON

export function json(value) {
  return h("pre.json", JSON.stringify(value, null, 2));
}

const inline = (value) => (value === undefined ? "" : JSON.stringify(value));

/** A context; changes since the previous version are marked by sign and colour. */
export function contextDiff(before, after) {
  const keys = [...new Set([...Object.keys(before || {}), ...Object.keys(after)])].filter(
    (each) => !each.startsWith("saga_"),
  );
  if (!keys.length) return h("p.empty", "No context");
  const lines = [];
  for (const key of keys) {
    const old = before ? inline(before[key]) : inline(after[key]);
    const now = inline(after[key]);
    if (old === now) lines.push(h("div.same", h("span.sign", " "), h("b", key), " ", shorten(now)));
    else {
      if (old) lines.push(h("div.minus", h("span.sign", "−"), h("b", key), " ", shorten(old)));
      if (now) lines.push(h("div.plus", h("span.sign", "+"), h("b", key), " ", shorten(now)));
    }
  }
  return h("div.diff", lines);
}

const shorten = (text) => (text.length > 400 ? `${text.slice(0, 400)}…` : text);

// Forms

let fields = 0;

/** A form for a schema: its `node`, and `value()`, which returns the input or throws an error about it. */
export function schemaForm(schema) {
  const listed = schema && schema.properties ? Object.entries(schema.properties) : null;
  if (schema && listed && !listed.length) return {node: h("p.muted", "No payload"), value: () => null};
  if (!listed) {
    const id = `f${++fields}`;
    const area = h("textarea", attrs({id, rows: 3, spellcheck: "false", placeholder: '{"id": "p-1"}'}));
    const node = h("div.field", h("label", attrs({for: id}), "Payload as JSON (optional)"), area);
    return {node, value: () => (area.value.trim() ? parsed(area.value, "The payload") : null)};
  }
  const required = new Set(schema.required || []);
  const made = listed.map(([name, shape]) => [name, control(name, shape, required.has(name))]);
  const value = () => {
    const found = {};
    for (const [name, each] of made) {
      const one = each.value();
      if (one !== undefined) found[name] = one;
    }
    return found;
  };
  return {
    node: h(
      "div.fields",
      made.map(([, each]) => each.node),
    ),
    value,
  };
}

function parsed(text, what) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${what} is not valid JSON.`);
  }
}

function control(name, shape, required) {
  const id = `f${++fields}`;
  const types = [shape.type].flat();
  const type = types.find((each) => each && each !== "null");
  const label = h(
    "label",
    attrs({for: id}),
    h("b", name),
    ` ${[type, required ? "required" : "optional"].filter(Boolean).join(", ")}`,
  );
  const note = shape.description && h("p.muted", shape.description);
  const preset = shape.default === undefined || shape.default === null ? "" : shape.default;
  let input;
  let value;
  if (shape.enum) {
    input = h(
      "select",
      attrs({id}),
      !required && h("option", attrs({value: ""}), "—"),
      shape.enum.map((each) => h("option", attrs({value: JSON.stringify(each)}), asText(each))),
    );
    if (preset !== "") input.value = JSON.stringify(preset);
    value = () => (input.value === "" ? undefined : JSON.parse(input.value));
  } else if (type === "boolean") {
    input = h(
      "select",
      attrs({id}),
      !required && h("option", attrs({value: ""}), "—"),
      h("option", attrs({value: "true"}), "true"),
      h("option", attrs({value: "false"}), "false"),
    );
    if (preset !== "") input.value = String(preset);
    value = () => (input.value === "" ? undefined : input.value === "true");
  } else if (type === "integer" || type === "number") {
    input = h("input", attrs({
      id,
      type: "number",
      step: type === "integer" ? 1 : "any",
      min: shape.minimum,
      max: shape.maximum,
      required,
      value: preset,
    }));
    value = () => (input.value === "" ? undefined : Number(input.value));
  } else if (type === "string") {
    input = h("input", attrs({id, type: "text", maxlength: shape.maxLength, required, value: preset}));
    value = () => (input.value === "" && !required ? undefined : input.value);
  } else {
    input = h(
      "textarea",
      attrs({id, rows: 2, spellcheck: "false", placeholder: type === "array" ? "[]" : type === "object" ? "{}" : "JSON"}),
      preset === "" ? "" : JSON.stringify(preset),
    );
    value = () => (input.value.trim() ? parsed(input.value, name) : undefined);
  }
  return {node: h("div.field", label, input, note), value};
}

/** The name of an effect as text: its payload may contain anything. */
export const effectName = ({payload, type}) =>
  asText((payload && (payload.name || payload.src || payload.event || payload.type)) || type);

/** A dialog with a title; closing removes it. */
export function dialog(title, ...content) {
  const node = h(
    "dialog",
    attrs({"aria-label": title}),
    h(
      "header",
      h("h2", title),
      h("button.quiet", attrs({type: "button", "aria-label": "Close", onclick: () => node.close()}), "✕"),
    ),
    content,
  );
  node.addEventListener("close", () => node.remove());
  node.addEventListener("click", (event) => event.target === node && node.close());
  document.body.append(node);
  node.showModal();
  return node;
}

/** Ask for a reason, then call `act(reason)`. */
export function confirmDialog(title, text, label, act) {
  const reason = h("input", attrs({id: "reason", required: true, maxlength: 500, autocomplete: "off"}));
  const note = h("div");
  const form = h(
    "form",
    attrs({
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          await act(reason.value);
          box.close();
        } catch (problem) {
          fill(note, problemNote(problem));
        }
      },
    }),
    h("div", text),
    h("div.field", h("label", attrs({for: "reason"}), "Reason"), reason),
    note,
    h("footer", h("button.primary", label)),
  );
  const box = dialog(title, form);
  reason.focus();
}

/** The statuses of work: sign, text and colour. */
export const WORK_STATUSES = {
  dead: ["✗", "dead letter", "bad"],
  cancelled: ["∅", "cancelled", "muted"],
  running: ["●", "running", "good"],
  expired: ["!", "lease expired", "warn"],
  retry: ["↻", "retrying", "warn"],
  pending: ["○", "pending", "muted"],
  scheduled: ["○", "scheduled", "muted"],
  waiting_child: ["○", "waiting for child", "muted"],
  queued: ["○", "queued", "muted"],
  held: ["‖", "held", "muted"],
};

/** A note for each hold: what is held, by whom and since when; the reason is only in the answer for operators. */
export function holdNotes(holds, onResume) {
  return holds.map((each) => {
    const isKind = !each.name.includes("/");
    return h(
      "div.note.warn.hold",
      attrs({role: "status", "data-testid": isKind ? "kind-hold" : "entity-hold"}),
      h(
        "p",
        h("b", isKind ? `‖ All entities of ${each.name} are held` : "‖ This entity is held"),
        each.by ? ` by ${each.by}` : "",
        " since ",
        time(each.at_ms),
        each.reason ? ` “${each.reason}”` : "",
      ),
      h("p", "Timers and new effects wait, and events are refused, until it is resumed."),
      may("operate") && h("button", attrs({onclick: () => onResume(each)}), isKind ? `Resume all ${each.name}…` : "Resume…"),
    );
  });
}

/** Ask for a reason and hold an entity or a kind: `{entity}` or `{kind}`. */
export function holdDialog(what, done) {
  const text = what.kind
    ? "Timers of all its entities stop, effects that have not started wait, and events and creations are refused, also for new entities."
    : "Its timers stop, effects that have not started wait, and events are refused. Running attempts end.";
  confirmDialog(`Hold ${what.kind ? `all entities of ${what.kind}` : what.entity}`, text, "Hold", async (reason) => {
    await post("hold", {...what, reason});
    await done();
  });
}

/** Ask for a reason and what happens to the timers, and end a hold. */
export function resumeDialog(hold, done) {
  const isKind = !hold.name.includes("/");
  const timers = h(
    "select",
    attrs({id: "hold-timers"}),
    h("option", attrs({value: "deadline"}), "keep their due times; overdue timers fire now"),
    h("option", attrs({value: "shift"}), "are later by the time of the hold"),
  );
  const text = [
    h("p", isKind ? "Entities that were held one by one stay held." : "Work that waited is due now."),
    h("div.field", h("label", attrs({for: "hold-timers"}), "Timers with a deadline"), timers),
  ];
  confirmDialog(`Resume ${isKind ? `all entities of ${hold.name}` : hold.name}`, text, "Resume", async (reason) => {
    await post("resume", {...(isKind ? {kind: hold.name} : {entity: hold.name}), reason, timers: timers.value});
    await done();
  });
}

/** The phases of a saga as text. */
export const SAGA_PHASES = {forward: "running", compensation: "compensating", blocked: "blocked"};

const STEP_STATUSES = {
  done: ["✓", "done"],
  running: ["●", "running"],
  waiting: ["○", "pending"],
  compensating: ["↩", "compensating"],
  clear: ["∅", "nothing to compensate"],
  skipped: ["∅", "skipped"],
};

/** The steps of a saga with their statuses. */
export function sagaSteps(saga) {
  return h(
    "ol.steps",
    saga.steps.map((each) => {
      const [sign, text] = STEP_STATUSES[each.status];
      return h(
        "li",
        attrs({class: each.status}),
        h("span", attrs({"aria-hidden": "true"}), sign),
        h("b", each.id),
        h("small", text),
      );
    }),
  );
}

/** Why an event was refused or changed nothing, by reason. */
export const REASONS = {
  no_transition: "No active state accepts it",
  no_content: "Accepted; nothing changed",
  guard: "A guard is false",
  roles: "Sender lacks a required role",
  permit: "The policy of the event refuses the sender",
  undeclared: "The chart does not declare this event",
  payload: "Invalid payload",
  failed: "The step failed",
  ended: "The entity has ended",
};

/** A problem in a few lines; for a refused event also the guards that are false and the values they read. */
export function problemNote(problem) {
  const receipt = problem.receipt;
  const lines = [
    h(
      "p",
      h("b", `✗ ${receipt ? receipt.outcome : problem.title || "Error"}`),
      " ",
      problem.detail || problem.message,
    ),
  ];
  if (receipt) {
    const reason = lookup(REASONS, receipt.reason);
    if (reason) lines.push(h("p", reason));
    for (const each of receipt.guards) lines.push(guardNote(each));
    for (const each of receipt.faults) lines.push(h("p", each));
  }
  if (problem.hint) lines.push(h("p.muted", problem.hint));
  return h("div.note.bad", attrs({role: "alert"}), lines);
}

/** A guard that is false, and the values it read. */
export function guardNote({guard, values, error}) {
  const read = Object.entries(values || {});
  return h(
    "div.guard",
    h("code", guard || "(no guard)"),
    read.length > 0 && h("span.muted", " with "),
    read.map(([key, value], at) => [at > 0 && ", ", h("code", `${key} = ${inline(value)}`)]),
    error && h("span.bad", " failed: ", error),
  );
}

/** A button for each event; next to an event that is not accepted, the reason. */
export function eventList(list, onPress, isDisabled = () => false) {
  return h(
    "ul.events",
    list.map((each) =>
      h(
        "li",
        attrs({class: each.accepted ? "yes" : "no"}),
        h(
          "button",
          attrs({class: each.accepted ? "" : "quiet", disabled: isDisabled(each), onclick: () => onPress(each)}),
          each.accepted ? "✓ " : "✗ ",
          each.event,
        ),
        each.accepted ? each.targets.length > 0 && h("span.muted", `→ ${each.targets.join(", ")}`) : refusalReason(each),
      ),
    ),
  );
}

function refusalReason(each) {
  if (each.why === "guard") return h("div.why", each.guards.map(guardNote));
  if (each.why === "roles")
    return h(
      "span.muted",
      each.roles && each.roles.length ? `requires the role ${each.roles.join(" or ")}` : "no role may send it",
    );
  if (each.why === "permit") return h("span.muted", "the chart does not allow it to you for this entity");
  if (each.why === "approvals")
    return h("span.muted", `needs ${each.approvals.count} approvals by ${each.approvals.of}, has ${each.approvals.has}`);
  if (each.why === "elsewhere")
    return h("span.muted", each.states.length ? `accepted in ${each.states.join(", ")}` : "not accepted in any state");
  return h("span.muted", "ended");
}

/** A dialog that sends an event to an entity. */
export function sendForm(entity, acceptance, version, done) {
  const form = schemaForm(acceptance.payload);
  const reason = h("input", attrs({id: "reason", maxlength: 500, autocomplete: "off", placeholder: "Stored with the entry"}));
  const note = h("div", attrs({"aria-live": "polite"}));
  const key = `console/${crypto.randomUUID ? crypto.randomUUID() : Date.now().toString(36) + Math.random().toString(36).slice(2)}`;
  async function act(event, dry) {
    event.preventDefault();
    try {
      const payload = form.value();
      const body = {event: acceptance.event, payload, reason: reason.value || null, dry_run: dry, key};
      const receipt = await post(
        `send/${entity.split("/").map(encodeURIComponent).join("/")}`,
        dry ? body : {...body, expected: version},
      );
      const where = receipt.configuration.join(", ");
      if (dry)
        fill(
          note,
          h(
            "div.note.good",
            h("p", h("b", `✓ Would be ${receipt.outcome}`), where && ` → ${where}`),
            receipt.effects.length > 0 && h("p.muted", `Effects: ${receipt.effects.join(", ")}`),
          ),
        );
      else {
        toast(`✓ ${acceptance.event} ${receipt.outcome}: ${where || "unchanged"}`, "good");
        box.close();
        done(receipt);
      }
    } catch (problem) {
      fill(note, problemNote(problem));
    }
  }
  const result = acceptance.targets.length
    ? `→ ${acceptance.targets.join(", ")}`
    : acceptance.accepted
      ? "No state change"
      : "Not accepted now";
  const node = h(
    "form",
    attrs({onsubmit: (event) => act(event, false)}),
    h("p.muted", result),
    acceptance.description && h("p", acceptance.description),
    form.node,
    h("div.field", h("label", attrs({for: "reason"}), "Reason"), reason),
    note,
    h(
      "footer",
      h("button", attrs({type: "button", onclick: (event) => act(event, true), "data-testid": "dry-run"}), "Dry run"),
      h("button.primary", `Send ${acceptance.event}`),
    ),
  );
  const box = dialog(`Send ${acceptance.event}`, node);
  const first = node.querySelector("input, select, textarea");
  if (first) first.focus();
}

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`${what} copied`);
  } catch {
    dialog(what, h("pre.json", attrs({tabindex: 0}), text));
  }
}

/** A button that loads the next page of a list. */
export function more(after, follow) {
  return after ? h("p.more", h("button", attrs({onclick: follow}), "Show more")) : null;
}
