// Entity: the drawing lit, the slider through its versions, what it accepts and waits for, its journal.

import {get, live, may, post} from "/static/api.js";
import {attrs, change, fill, h, keepQuery, later, onLeave, page, toast} from "/static/elements.js";
import {asCurl, asTest} from "/static/copying.js";
import {diagram} from "/static/diagram.js";
import {
  age,
  contextDiff,
  copy,
  dialog,
  effectName,
  entityLink,
  eventList,
  folded,
  json,
  problemNote,
  row,
  sendForm,
  states,
  table,
  time,
  until,
} from "/static/parts.js";
import {apiPath, bound, kindPath, many, revision, span} from "/static/words.js";

/** Rows of the journal that are shown at first, and with each step back: what is not shown costs nothing. */
const ROWS = 100;

page("/e/(.+)", async (main, [entity], given) => {
  document.title = `${entity} · Interlock`;
  const path = apiPath(entity);
  const versions = new Map();
  const asked = Number(given.get("version")) || null;
  let latest = await get(`entity/${path}`);
  let shown = latest;
  let entries = [];
  let older = false;
  const page = await get(`journal/${path}?limit=100`);
  entries = page.entries;
  older = entries.length > 0 && entries[0].version > 1;
  const detail = await get(`kinds/${encodeURIComponent(latest.kind)}`).catch(() => null);
  const chart = await diagram(
    `kinds/${encodeURIComponent(latest.kind)}/chart.svg?revision=${encodeURIComponent(latest.revision)}`,
    {label: `Chart of ${latest.kind}`, states: detail ? detail.kind.states.map((each) => each.id) : []},
  ).catch((problem) => h("p.empty", problem.detail || "No drawing."));
  const head = h("div");
  const story = h("div.story", attrs({"aria-live": "polite"}));
  const accepted = h("section.card");
  const waiting = h("section.card");
  const saga = h("div");
  const journal = h("section.card");
  const slider = h("input", attrs({
    type: "range",
    min: 1,
    max: latest.latest,
    value: latest.latest,
    step: 1,
    id: "slider",
    "aria-label": "Version",
    oninput: () => travel(Number(slider.value)),
  }));
  const place = h("output", attrs({for: "slider"}));
  const liveButton = h("button.quiet", attrs({onclick: () => travel(latest.latest), title: "Back to now"}), "live");
  const state = {filter: "all", text: "", rows: ROWS};

  const fetchVersion = async (version) => {
    if (version === latest.latest) return latest;
    if (!versions.has(version)) versions.set(version, await get(`entity/${path}?version=${version}`));
    return versions.get(version);
  };
  let wanted = latest.latest;
  const load = later(50, async () => {
    const version = wanted;
    try {
      const found = await fetchVersion(version);
      if (version !== wanted) return;
      shown = found;
      show();
    } catch (problem) {
      toast(problem.detail || problem.message, "bad");
    }
  });
  function travel(version) {
    wanted = Math.min(Math.max(1, version), latest.latest);
    slider.value = wanted;
    mark();
    keepQuery({version: wanted === latest.latest ? null : wanted});
    load();
  }
  function mark() {
    fill(place, "version ", h("b", wanted), ` of ${latest.latest}`);
    change(liveButton, {"aria-pressed": wanted === latest.latest ? "true" : "false"});
    change(slider, {max: latest.latest, "aria-valuetext": `version ${wanted} of ${latest.latest}`});
  }
  const isNow = () => shown.version === latest.latest;

  function show() {
    const visited = entries.filter((each) => each.version <= shown.version).flatMap((each) => each.after);
    if (chart.light) chart.light({active: shown.active, took: shown.took, visited});
    fill(
      head,
      h(
        "div.title",
        h(
          "h1",
          h("a.crumb", attrs({href: "/"}), "Fleet"),
          " / ",
          h("a.crumb", attrs({href: kindPath(shown.kind)}), shown.kind),
          " / ",
          h("span.mono", shown.id),
        ),
        h(
          "div.actions",
          may("send") &&
            isNow() &&
            !shown.ended &&
            h("button.primary", attrs({onclick: choose, title: "Send an event (e)"}), "Send…"),
          h("button", attrs({onclick: verify}), "Verify chain"),
        ),
      ),
      h(
        "p.facts",
        h("span.now", attrs({class: shown.ended ? "over" : ""}), shown.ended ? "■ " : "● ", shown.configuration.join(", ")),
        shown.since_ms &&
          h(
            "span",
            "for ",
            isNow() ? age(shown.since_ms) : "—",
            shown.p95_ms && isNow() ? h("span.muted", ` (p95 ≤ ${bound(shown.p95_ms)})`) : null,
          ),
        h("span", "version ", h("b", shown.version)),
        h("span", "revision ", revision(shown.revision)),
        shown.ended && h("span.pill", `ended: ${shown.ended}`),
        shown.parent && h("span", "child of ", entityLink(shown.parent)),
        shown.damage && h("a.bad", attrs({href: "/audit"}), "✗ chain broken"),
        shown.masked && h("span.pill", "masked"),
      ),
    );
    const entry = shown.entry;
    fill(
      story,
      entry
        ? [
            h("h3", entry.event),
            h(
              "p.muted",
              time(entry.time_ms),
              entry.principal ? [" by ", h("b", entry.principal)] : "",
              entry.said && ` “${entry.said}”`,
              ` · ${entry.outcome}`,
              entry.reason && ` (${entry.reason})`,
            ),
            entry.data !== null && entry.event !== "create" && h("details", h("summary", "Payload"), json(entry.data)),
          ]
        : shown.damage
          ? problemNote({title: "Damaged", detail: shown.damage})
          : h("p.muted", "The journal of this version is archived."),
      h("h4", "Context"),
      shown.far !== null &&
        h(
          "p.muted",
          "What this step changed is not worked out by itself in a long journal. ",
          h("button.link", attrs({onclick: reach}), `Replay ${many(shown.far, "entry", "entries")}`),
        ),
      contextDiff(shown.context_before, shown.context),
      entry &&
        entry.effects.length > 0 && [
          h("h4", "Effects"),
          folded(
            entry.effects.map((each) => h("li", h("span.kind", each.type), " ", effectName(each))),
            "effect",
          ),
        ],
      shown.output !== null && [h("h4", "Output"), json(shown.output)],
    );
    fill(
      saga,
      shown.saga.map((each) =>
        h(
          "section.card",
          h(
            "h2",
            "Saga ",
            h("span.mono", each.state),
            " ",
            h("span.pill", attrs({class: each.phase === "forward" ? "good" : "bad"}), each.phase),
          ),
          steps(each),
        ),
      ),
    );
    fill(accepted, h("h2", "Accepted now"), acceptedList());
    fill(waiting, h("h2", "Waiting for"), waitingList());
    showJournal();
    mark();
  }

  function acceptedList() {
    if (!isNow())
      return h(
        "p.empty",
        "Shown for the present only. ",
        h("button.link", attrs({onclick: () => travel(latest.latest)}), "Go there"),
      );
    if (shown.ended) return h("p.empty", "It has ended: no event is accepted any more.");
    return eventList(
      shown.accepted,
      (each) => sendForm(entity, each, latest.latest, refresh),
      (each) => !may("send") || each.why === "roles",
    );
  }

  function waitingList() {
    const rows = [
      ...shown.timers.map((each) =>
        h(
          "li",
          h("span.kind", "timer"),
          " ",
          h("b", each.event),
          " ",
          isNow() ? until(each.due_ms) : time(each.due_ms),
        ),
      ),
      ...shown.work
        .filter((each) => each.lane !== "timer")
        .map((each) => h("li", h("span.kind", each.lane), " ", h("b", each.name), " ", workNote(each))),
    ];
    const began = shown.children.map((each) =>
      h(
        "li",
        h("span.kind", "child"),
        " ",
        entityLink(each.entity),
        " ",
        states(each.configuration),
        each.ended && h("span.muted", ` ended ${each.ended}`),
      ),
    );
    if (!rows.length && !began.length)
      return h("p.empty", shown.ended ? "Nothing: it has ended." : isNow() ? "Nothing but events." : "—");
    return [
      began.length > 0 && folded(began, "child", "children"),
      rows.length > 0 && folded(rows, "other", "others"),
      shown.work_more &&
        h("p.more", h("a", attrs({href: `/effects?entity=${encodeURIComponent(entity)}`}), "All work of this entity")),
    ];
  }

  function showJournal() {
    const wantedText = state.text.toLowerCase();
    const kinds = {
      applied: (each) => each.outcome === "applied",
      ignored: (each) => each.outcome !== "applied",
      effects: (each) => each.effects.some((one) => one.type === "call" || one.type === "invoke"),
      timers: (each) => (each.source || "").startsWith("timer/") || each.event.startsWith("after."),
      failed: (each) => each.event.startsWith("error."),
    };
    const found = entries
      .filter(
        (each) =>
          (!kinds[state.filter] || kinds[state.filter](each)) &&
          (!wantedText || JSON.stringify(each).toLowerCase().includes(wantedText)),
      )
      .reverse();
    const chips = ["all", ...Object.keys(kinds)].map((each) =>
      h(
        "button.chip",
        attrs({
          "aria-pressed": String(each === state.filter),
          onclick: () => {
            state.filter = each;
            showJournal();
          },
        }),
        each,
      ),
    );
    const box = h("input", attrs({
      type: "search",
      "aria-label": "Filter the journal",
      placeholder: "filter…",
      value: state.text,
    }));
    box.addEventListener("input", () => {
      state.text = box.value;
      showJournal();
      journal.querySelector("input[type=search]").focus();
    });
    fill(
      journal,
      h(
        "header.row",
        h("h2", "Journal"),
        h("div.chips", chips),
        box,
        h("span.grow"),
        h("button.quiet", attrs({onclick: () => copy(asTest(latest.kind, entity, entries), "Test")}), "copy as test"),
        h("button.quiet", attrs({onclick: () => copy(asCurl(entity), "curl")}), "copy as curl"),
      ),
      page.archived && h("p.muted", page.archived),
      page.damage &&
        problemNote({
          title: "The chain is broken",
          detail: page.damage.message,
          hint: `Entries up to version ${page.damage.version - 1} are proven.`,
        }),
      table(
        "Journal",
        [["Version", "num"], "Time", "Event", "From → to", ["By", ""], ["Effects", ""]],
        found.slice(0, state.rows).map(line),
        "No entry matches.",
      ),
      found.length > state.rows
        ? h(
            "p.more",
            h("button", attrs({onclick: further}), "Earlier entries"),
            h("span.muted", ` ${many(found.length - state.rows, "more")} here`),
          )
        : older && h("p.more", h("button", attrs({onclick: earlier}), "Earlier entries")),
    );
  }

  function line(each) {
    const node = row(
      h(
        "td.num",
        h(
          "button.link",
          attrs({onclick: () => travel(each.version), "aria-label": `Go to version ${each.version}`}),
          each.version,
        ),
      ),
      time(each.time_ms),
      [h("b", each.event), each.outcome !== "applied" && h("span.muted", ` ${each.outcome}`)],
      each.before.join() === each.after.join()
        ? h("span.muted", "stays")
        : [states(each.before), " → ", states(each.after)],
      [
        each.principal || (each.source && h("span.muted", each.source.split("/")[0])),
        each.said && h("span.muted", ` “${each.said}”`),
      ],
      effectNames(each.effects.filter((one) => one.type === "call" || one.type === "invoke").map(effectName)),
    );
    if (each.version === shown.version) node.classList.add("here");
    node.addEventListener("dblclick", () => dialog(`Entry ${each.version}`, json(each)));
    return node;
  }

  function further() {
    state.rows += ROWS;
    showJournal();
  }

  async function reach() {
    const version = shown.version;
    try {
      const found = await get(`entity/${path}?far=true&version=${version}`);
      if (version === latest.version) latest = found;
      else versions.set(version, found);
      if (version === wanted) shown = found;
      show();
    } catch (problem) {
      toast(problem.detail || problem.message, "bad");
    }
  }

  async function earlier() {
    const found = await get(`journal/${path}?before=${entries[0].version}&limit=100`);
    entries = [...found.entries, ...entries];
    state.rows += ROWS;
    older = entries.length > 0 && entries[0].version > 1 && found.entries.length > 0;
    show();
  }

  async function refresh() {
    const follow = wanted === latest.latest;
    const last = entries.length ? entries[entries.length - 1].version : 0;
    const [now, more] = await Promise.all([get(`entity/${path}`), get(`journal/${path}?after=${last}&limit=100`)]);
    const known = entries.length ? entries[entries.length - 1].version : 0;
    latest = now;
    const fresh = more.entries.filter((each) => each.version > known);
    const reached = fresh.length ? fresh[fresh.length - 1].version : known;
    if (now.latest - reached > 0) {
      // Too much came at once: what lies between is read again when somebody goes back to it.
      entries = (await get(`journal/${path}?limit=100`)).entries;
      older = entries.length > 0 && entries[0].version > 1;
    } else entries = [...entries, ...fresh];
    if (follow) {
      wanted = now.latest;
      shown = now;
      slider.max = now.latest;
      slider.value = now.latest;
    }
    show();
  }

  function choose() {
    const list = latest.accepted.filter((each) => each.why !== "roles");
    const box = dialog(
      "Send an event",
      eventList(list, (each) => {
        box.close();
        sendForm(entity, each, latest.latest, refresh);
      }),
    );
  }

  async function verify() {
    try {
      let job = await post("verify", {entity});
      for (let tries = 0; job.ended_ms === null && tries < 100; tries += 1) {
        await new Promise((done) => setTimeout(done, 60));
        job = await get(`jobs/${job.id}`);
      }
      const [bad] = job.problems;
      dialog(
        "Chain",
        bad
          ? problemNote({
              title: `Broken at version ${bad.version}`,
              detail: bad.message,
              hint: `${many(bad.proven, "entry", "entries")} before it are proven.`,
            })
          : h(
              "div.note.good",
              h(
                "p",
                h(
                  "b",
                  `✓ ${many(job.samples.length ? job.samples[0].entries : 0, "entry", "entries")} linked and replayed`,
                ),
              ),
              job.samples.length > 0 && h("p.muted", "head ", h("code", job.samples[0].head)),
            ),
      );
    } catch (problem) {
      toast(problem.detail || problem.message, "bad");
    }
  }

  const keys = (event) => {
    if (event.target.closest && event.target.closest("input, textarea, select, dialog, il-diagram")) return;
    if (event.key === "ArrowLeft") travel(wanted - 1);
    else if (event.key === "ArrowRight") travel(wanted + 1);
    else if (event.key === "e" && may("send") && !latest.ended) choose();
    else return;
    event.preventDefault();
  };
  addEventListener("keydown", keys);
  onLeave(main, () => removeEventListener("keydown", keys));

  fill(
    main,
    head,
    h(
      "div.split.entity",
      h("section.card.picture", attrs({"aria-label": "Diagram"}), chart),
      h(
        "div.side",
        h(
          "section.card",
          h(
            "div.slider",
            h("button.quiet", attrs({"aria-label": "Version before", onclick: () => travel(wanted - 1)}), "◀"),
            slider,
            h("button.quiet", attrs({"aria-label": "Version after", onclick: () => travel(wanted + 1)}), "▶"),
          ),
          h("div.slider", place, h("span.grow"), liveButton),
          story,
        ),
        saga,
        accepted,
        waiting,
      ),
    ),
    journal,
  );
  show();
  if (asked && asked !== latest.latest) travel(asked);
  live(
    main,
    `streams/entity/${path}?after=${latest.latest}`,
    {entry: (entry) => entry.version > latest.latest && refresh(), gap: refresh},
    refresh,
  );
});

export function steps(saga) {
  const signs = {done: "✓", running: "●", waiting: "○", compensating: "↩", clear: "∅", skipped: "∅"};
  return h(
    "ol.steps",
    saga.steps.map((each) =>
      h(
        "li",
        attrs({class: each.status}),
        h("span", attrs({"aria-hidden": "true"}), signs[each.status]),
        h("b", each.id),
        h("small", each.status),
      ),
    ),
  );
}

function workNote(each) {
  if (each.status === "dead") return h("span.bad", `✗ dead after ${many(each.attempts, "attempt")}`);
  if (each.status === "retry")
    return h(
      "span.warn",
      `↻ ${each.failures}${each.retries ? `/${each.retries}` : ""}, next `,
      each.next_ms ? until(each.next_ms) : "soon",
    );
  if (each.status === "running") return h("span.muted", `● running on ${each.owner}`);
  if (each.status === "expired") return h("span.warn", `! lease of ${each.owner} expired`);
  if (each.status === "cancelled") return h("span.muted", "cancelled");
  return h("span.muted", each.next_ms ? "due " : "waiting for something else", each.next_ms ? time(each.next_ms) : "");
}

const effectNames = (names) =>
  names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${many(names.length - 3, "other")}` : names.join(", ");
