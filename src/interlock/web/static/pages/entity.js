// Entity: the diagram, the version slider, accepted events, pending work, the journal.

import {get, live, may, post} from "/static/api.js";
import {attrs, change, fill, h, updateQuery, debounce, onLeave, page, toast} from "/static/dom.js";
import {asCurl, asTest} from "/static/export.js";
import {diagram} from "/static/diagram.js";
import {timeline} from "/static/timeline.js";
import {
  SAGA_PHASES,
  WORK_STATUSES,
  age,
  contextDiff,
  copy,
  dialog,
  effectName,
  entityLink,
  eventList,
  foldedList,
  holdDialog,
  holdNotes,
  json,
  problemNote,
  resumeDialog,
  row,
  sagaSteps,
  sendForm,
  states,
  table,
  time,
  until,
} from "/static/components.js";
import {apiPath, clock, duration, kindPath, limit, number, quantity, revision} from "/static/format.js";

/** Rows of the journal that are shown at first and added with each click. */
const ROWS = 100;
/** How often the page asks whether the entity is held: the hold of a kind is not an entry, so no stream tells it. */
const HOLDS_MS = 10_000;

page("/e/(.+)", async (main, [entity], given) => {
  document.title = `${entity} · Interlock`;
  const path = apiPath(entity);
  const versions = new Map();
  const requested = Number(given.get("version")) || null;
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
  ).catch((problem) => h("p.empty", problem.detail || "No diagram"));
  const head = h("div");
  const held = h("div", attrs({"aria-live": "polite"}));
  let holds = await loadHolds();
  const details = h("div.story", attrs({"aria-live": "polite"}));
  const accepted = h("section.card");
  const pending = h("section.card");
  const saga = h("div");
  const journal = h("section.card");
  const life = h("section.card.timeline", attrs({"aria-label": "Timeline", hidden: true}));
  const slider = h("input", attrs({
    type: "range",
    min: 1,
    max: latest.latest,
    value: latest.latest,
    step: 1,
    id: "slider",
    "aria-label": "Version",
    oninput: () => showVersion(Number(slider.value)),
  }));
  const position = h("output", attrs({for: "slider"}));
  const latestButton = h("button.quiet", attrs({onclick: () => showVersion(latest.latest), title: "Show the latest version"}), "Latest");
  const state = {filter: "all", text: "", rows: ROWS};

  const fetchVersion = async (version) => {
    if (version === latest.latest) return latest;
    if (!versions.has(version)) versions.set(version, await get(`entity/${path}?version=${version}`));
    return versions.get(version);
  };
  let wanted = latest.latest;
  const load = debounce(50, async () => {
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
  function showVersion(version) {
    wanted = Math.min(Math.max(1, version), latest.latest);
    slider.value = wanted;
    mark();
    updateQuery({version: wanted === latest.latest ? null : wanted});
    load();
  }
  function mark() {
    fill(position, "version ", h("b", wanted), ` of ${latest.latest}`);
    change(latestButton, {"aria-pressed": wanted === latest.latest ? "true" : "false"});
    change(slider, {max: latest.latest, "aria-valuetext": `version ${wanted} of ${latest.latest}`});
  }
  const isLatest = () => shown.version === latest.latest;

  function show() {
    const visited = entries.filter((each) => each.version <= shown.version).flatMap((each) => each.after);
    if (chart.highlight) chart.highlight({active: shown.active, transitions: shown.transitions, visited});
    fill(
      head,
      h(
        "div.title",
        h(
          "h1",
          h("a.crumb", attrs({href: "/"}), "Overview"),
          " / ",
          h("a.crumb", attrs({href: kindPath(shown.kind)}), shown.kind),
          " / ",
          h("span.mono", shown.id),
        ),
        h(
          "div.actions",
          may("send") &&
            isLatest() &&
            !shown.ended &&
            h("button.primary", attrs({onclick: chooseEvent, title: "Send an event (e)"}), "Send event…"),
          may("operate") &&
            holds.may_hold &&
            !latest.ended &&
            !holds.holds.some((each) => each.name === entity) &&
            h("button", attrs({onclick: () => holdDialog({entity}, refresh)}), "Hold…"),
          h("button", attrs({onclick: verify}), "Verify journal"),
        ),
      ),
      h(
        "p.facts",
        h("span.now", attrs({class: shown.ended ? "over" : ""}), shown.ended ? "■ " : "● ", shown.configuration.join(", ")),
        shown.since_ms &&
          h(
            "span",
            "for ",
            isLatest() ? age(shown.since_ms) : "—",
            shown.p95_ms && isLatest() ? h("span.muted", ` (p95 ≈ ${duration(shown.p95_ms)})`) : null,
          ),
        h("span", "version ", h("b", shown.version)),
        h("span", "revision ", revision(shown.revision, shown.label)),
        shown.ended && h("span.pill", `ended: ${shown.ended}`),
        shown.parent && h("span", "child of ", entityLink(shown.parent)),
        shown.damage && h("a.bad", attrs({href: "/audit"}), "✗ journal corrupt"),
        shown.masked && h("span.pill", "masked"),
      ),
    );
    fill(held, holdNotes(holds.holds, (each) => resumeDialog(each, refresh)));
    const entry = shown.entry;
    fill(
      details,
      entry
        ? [
            h("h3", entry.event),
            h(
              "p.muted",
              time(entry.time_ms),
              entry.principal ? [" by ", h("b", entry.principal)] : "",
              entry.reason_given && ` “${entry.reason_given}”`,
              ` · ${entry.outcome}`,
              entry.reason && ` (${entry.reason})`,
            ),
            entry.data !== null && entry.event !== "create" && h("details", h("summary", "Payload"), json(entry.data)),
          ]
        : shown.damage
          ? problemNote({title: "Journal corrupt", detail: shown.damage})
          : h("p.muted", "The journal of this version is archived"),
      h("h4", "Context"),
      shown.replay_distance !== null &&
        h(
          "p.muted",
          "Changes are not computed automatically for long journals. ",
          h("button.link", attrs({onclick: computeChanges, "data-testid": "replay"}), `Replay ${quantity(shown.replay_distance, "entry", "entries")}`),
        ),
      contextDiff(shown.context_before, shown.context),
      entry &&
        entry.effects.length > 0 && [
          h("h4", "Effects"),
          foldedList(
            entry.effects.map((each) => h("li", h("span.kind", each.type), " ", effectName(each))),
            "effect",
          ),
        ],
      entry && entry.attempts.length > 0 && [h("h4", "Attempts"), h("ul.plain.attempts", entry.attempts.map(attemptLine))],
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
            h("span.pill", attrs({class: each.phase === "forward" ? "good" : "bad"}), SAGA_PHASES[each.phase]),
          ),
          sagaSteps(each),
        ),
      ),
    );
    fill(accepted, h("h2", "Accepted events"), acceptedList());
    fill(pending, h("h2", "Pending"), pendingList());
    showTimeline();
    showJournal();
    mark();
  }

  function showTimeline() {
    change(life, {hidden: entries.length === 0});
    fill(
      life,
      timeline(entries, {
        nowMs: latest.now_ms,
        ended: latest.ended,
        shown: shown.version,
        isComplete: !older,
        pick: showVersion,
      }),
    );
  }

  function acceptedList() {
    if (!isLatest())
      return h(
        "p.empty",
        "Latest version only. ",
        h("button.link", attrs({onclick: () => showVersion(latest.latest)}), "Show latest"),
      );
    if (shown.ended) return h("p.empty", "None (ended)");
    return eventList(
      shown.accepted,
      (each) => sendForm(entity, each, latest.latest, refresh),
      (each) => !may("send") || each.why === "roles",
    );
  }

  function pendingList() {
    const rows = [
      ...shown.timers.map((each) =>
        h(
          "li",
          h("span.kind", "timer"),
          " ",
          h("b", each.event),
          " ",
          isLatest() ? until(each.due_ms) : time(each.due_ms),
        ),
      ),
      ...shown.work
        .filter((each) => each.lane !== "timer")
        .map((each) => h("li", h("span.kind", each.lane), " ", h("b", each.name), " ", workNote(each), failedAttempts(each))),
    ];
    const children = shown.children.map((each) =>
      h(
        "li",
        h("span.kind", "child"),
        " ",
        entityLink(each.entity),
        " ",
        states(each.configuration),
        each.ended && h("span.muted", ` ended: ${each.ended}`),
      ),
    );
    if (!rows.length && !children.length)
      return h("p.empty", shown.ended ? "None (ended)" : isLatest() ? "Waiting for an event" : "—");
    return [
      children.length > 0 && foldedList(children, "child", "children"),
      rows.length > 0 && foldedList(rows, "item"),
      shown.work_more &&
        h("p.more", h("a", attrs({href: `/effects?entity=${encodeURIComponent(entity)}`}), "Show all work of this entity")),
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
    const labels = {all: "All", applied: "Applied", ignored: "Ignored", effects: "Effects", timers: "Timers", failed: "Errors"};
    const chips = Object.entries(labels).map(([each, label]) =>
      h(
        "button.chip",
        attrs({
          "aria-pressed": String(each === state.filter),
          onclick: () => {
            state.filter = each;
            showJournal();
          },
        }),
        label,
      ),
    );
    const box = h("input", attrs({
      type: "search",
      "aria-label": "Filter the journal",
      placeholder: "Filter",
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
        h(
          "div.actions",
          h(
            "button.quiet",
            attrs({
              onclick: () => copy(asTest(latest, entries), "Test"),
              "data-testid": "copy-as-test",
            }),
            "Copy as test",
          ),
          h("button.quiet", attrs({onclick: () => copy(asCurl(entity, latest.accepted), "curl command")}), "Copy as curl"),
        ),
      ),
      page.archived && h("p.muted", page.archived),
      page.damage &&
        problemNote({
          title: "Journal corrupt",
          detail: page.damage.message,
          hint: `Entries up to version ${page.damage.version - 1} are verified.`,
        }),
      table(
        "Journal",
        [["Version", "num"], "Time", "Event", "From → to", ["By", ""], ["Effects", ""]],
        found.slice(0, state.rows).map(journalRow),
        "No matching entries",
      ),
      found.length > state.rows
        ? h(
            "p.more",
            h("button", attrs({onclick: showMore, "data-testid": "older-entries"}), "Older entries"),
            h("span.muted", ` ${number(found.length - state.rows)} more loaded`),
          )
        : older && h("p.more", h("button", attrs({onclick: loadOlder, "data-testid": "older-entries"}), "Older entries")),
    );
  }

  function journalRow(each) {
    const node = row(
      h(
        "td.num",
        h(
          "button.link",
          attrs({onclick: () => showVersion(each.version), "aria-label": `Go to version ${each.version}`}),
          each.version,
        ),
      ),
      time(each.time_ms),
      [
        h("b", each.event),
        each.outcome !== "applied" && h("span.muted", ` ${each.outcome}`),
        each.attempts.length > 0 &&
          h(
            "details",
            h("summary.warn", `↻ ${quantity(each.attempts.length, "attempt")}`),
            h("ul.plain.attempts", each.attempts.map(attemptLine)),
          ),
      ],
      each.before.join() === each.after.join()
        ? h("span.muted", "no change")
        : [states(each.before), " → ", states(each.after)],
      [
        each.principal || (each.source && h("span.muted", each.source.split("/")[0])),
        each.reason_given && h("span.muted", ` “${each.reason_given}”`),
      ],
      effectNames(each.effects.filter((one) => one.type === "call" || one.type === "invoke").map(effectName)),
    );
    if (each.version === shown.version) node.classList.add("here");
    node.addEventListener("dblclick", () => dialog(`Entry ${each.version}`, json(each)));
    return node;
  }

  function showMore() {
    state.rows += ROWS;
    showJournal();
  }

  async function loadHolds() {
    return get(`holds?entity=${encodeURIComponent(entity)}`);
  }

  async function refreshHolds() {
    if (document.hidden) return;
    try {
      const now = await loadHolds();
      if (JSON.stringify(now.holds) === JSON.stringify(holds.holds)) return;
      holds = now;
      show();
    } catch {
      /* the next request says what is wrong */
    }
  }

  async function computeChanges() {
    const version = shown.version;
    try {
      const found = await get(`entity/${path}?replay=true&version=${version}`);
      if (version === latest.version) latest = found;
      else versions.set(version, found);
      if (version === wanted) shown = found;
      show();
    } catch (problem) {
      toast(problem.detail || problem.message, "bad");
    }
  }

  async function loadOlder() {
    const found = await get(`journal/${path}?before=${entries[0].version}&limit=100`);
    entries = [...found.entries, ...entries];
    state.rows += ROWS;
    older = entries.length > 0 && entries[0].version > 1 && found.entries.length > 0;
    show();
  }

  async function refresh() {
    const isFollowing = wanted === latest.latest;
    const last = entries.length ? entries[entries.length - 1].version : 0;
    const [now, more, heldNow] = await Promise.all([
      get(`entity/${path}`),
      get(`journal/${path}?after=${last}&limit=100`),
      loadHolds(),
    ]);
    holds = heldNow;
    const known = entries.length ? entries[entries.length - 1].version : 0;
    latest = now;
    const fresh = more.entries.filter((each) => each.version > known);
    const reached = fresh.length ? fresh[fresh.length - 1].version : known;
    if (now.latest - reached > 0) {
      // More entries than one page arrived: load the last ones; older ones are loaded on demand.
      entries = (await get(`journal/${path}?limit=100`)).entries;
      older = entries.length > 0 && entries[0].version > 1;
    } else entries = [...entries, ...fresh];
    if (isFollowing) {
      wanted = now.latest;
      shown = now;
      slider.max = now.latest;
      slider.value = now.latest;
    }
    show();
  }

  function chooseEvent() {
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
        "Journal integrity",
        bad
          ? problemNote({
              title: `Corrupt at version ${bad.version}`,
              detail: bad.message,
              hint: `${quantity(bad.proven, "entry", "entries")} before it verified.`,
            })
          : h(
              "div.note.good",
              h(
                "p",
                h(
                  "b",
                  `✓ ${quantity(job.samples.length ? job.samples[0].entries : 0, "entry", "entries")} verified`,
                ),
              ),
              job.samples.length > 0 && h("p.muted", "Last hash ", h("code", job.samples[0].head)),
            ),
      );
    } catch (problem) {
      toast(problem.detail || problem.message, "bad");
    }
  }

  const onKey = (event) => {
    if (event.target.closest && event.target.closest("input, textarea, select, dialog, il-diagram")) return;
    if (event.key === "ArrowLeft") showVersion(wanted - 1);
    else if (event.key === "ArrowRight") showVersion(wanted + 1);
    else if (event.key === "e" && may("send") && !latest.ended) chooseEvent();
    else return;
    event.preventDefault();
  };
  addEventListener("keydown", onKey);
  onLeave(main, () => removeEventListener("keydown", onKey));
  const holdsTimer = setInterval(refreshHolds, HOLDS_MS);
  onLeave(main, () => clearInterval(holdsTimer));

  fill(
    main,
    head,
    held,
    h(
      chart.isWide ? "div.split.entity.stacked.short" : "div.split.entity",
      h("section.card.picture", attrs({"aria-label": "Diagram"}), chart),
      h(
        "div.side",
        h(
          "section.card",
          h(
            "div.slider",
            h("button.quiet", attrs({"aria-label": "Previous version", title: "Previous version (←)", onclick: () => showVersion(wanted - 1)}), "◀"),
            slider,
            h("button.quiet", attrs({"aria-label": "Next version", title: "Next version (→)", onclick: () => showVersion(wanted + 1)}), "▶"),
          ),
          h("div.slider", position, h("span.grow"), latestButton),
          details,
        ),
        saga,
        accepted,
        pending,
      ),
    ),
    life,
    journal,
  );
  show();
  if (requested && requested !== latest.latest) showVersion(requested);
  live(
    main,
    `streams/entity/${path}?after=${latest.latest}`,
    {entry: (entry) => entry.version > latest.latest && refresh(), gap: refresh},
    refresh,
  );
});

function workNote(each) {
  if (each.status === "dead") return h("span.bad", `✗ dead letter after ${quantity(each.attempts, "attempt")}`);
  if (each.status === "retry")
    return h(
      "span.warn",
      `↻ retry ${each.failures}${each.retries ? ` of ${each.retries}` : ""} `,
      each.next_ms ? until(each.next_ms) : "soon",
    );
  if (each.status === "running") return h("span.muted", `● running on ${each.owner}`);
  if (each.status === "expired") return h("span.warn", `! lease of ${each.owner} expired`);
  const [, text] = WORK_STATUSES[each.status];
  return h("span.muted", text, each.next_ms ? [", due ", time(each.next_ms)] : "");
}

/** The failed attempts that are stored with a piece of work, newest first. */
function failedAttempts(each) {
  const failed = each.error?.failed;
  if (!Array.isArray(failed) || !failed.length) return "";
  return h("details", h("summary", quantity(failed.length, "failed attempt")), h("ul.plain.attempts", failed.toReversed().map(attemptLine)));
}

/** One attempt: how long it ran, its error, when it started, and how much later the next one was due. */
function attemptLine(each) {
  const {number: count, code, message, started_ms, duration_ms, next_ms} = each;
  const wait = next_ms && next_ms - started_ms - duration_ms;
  return h(
    "li",
    h("b", attrs({class: code ? "bad" : "good"}), `${code ? "✗" : "✓"} attempt ${count}`),
    ` ran ${duration(duration_ms)}`,
    code && [": ", h("code", code), message ? ` ${message}` : ""],
    h(
      "div.muted",
      "started ",
      time(started_ms),
      next_ms && [", next try ", h("span", attrs({title: clock(next_ms)}), wait > 0 ? `${duration(wait)} later` : "at once")],
    ),
  );
}

const effectNames = (names) =>
  names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${number(names.length - 3)} more` : names.join(", ");
