// Talking to the server: requests with their problems, the login, and live streams.

import {attrs, change, fill, h, onLeave, render, toast, trouble} from "/static/dom.js";

const BASE = "/api/v1/";
const TOKEN = "interlock-token";
const RETRY_MS = 2000;
export let me = null;
let token = kept();

// The cookie alone opens nothing: every request carries the login's token, too. A browser sends a cookie to every port
// of this host, but shows what is stored here to no other port.
function kept() {
  try {
    return localStorage.getItem(TOKEN) || "";
  } catch {
    return ""; // nothing may be stored: the login then lasts as long as this page
  }
}

function keep(value) {
  token = value;
  try {
    if (value) localStorage.setItem(TOKEN, value);
    else localStorage.removeItem(TOKEN);
  } catch {
    /* not allowed to remember: then not */
  }
}

const signed = (headers = {}) => ({...headers, "X-Interlock-CSRF": token});

/** A problem as the server tells it. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title);
    Object.assign(this, body, {status});
  }
}

async function asked(path, options = {}) {
  let response;
  try {
    response = await fetch(BASE + path, {...options, headers: signed(options.headers)});
  } catch {
    throw new Problem(0, {title: "No connection", detail: "The server does not answer.", hint: "Is it still running?"});
  }
  if (response.ok) return response;
  let body = {title: response.statusText || "Problem", detail: `The server answered ${response.status}.`};
  try {
    body = await response.json();
  } catch {
    /* not ours: what stands above will do */
  }
  if (response.status === 401 && me) {
    me = null;
    await logIn();
    if (!options.method) return asked(path, options);
    // Who has logged in now may be somebody else.
    toast("Nothing was sent: the login was over.", "bad");
  }
  throw new Problem(response.status, body);
}

export const get = async (path) => (await asked(path)).json();
export const text = async (path) => (await asked(path)).text();

export async function post(path, body = {}) {
  const headers = {"Content-Type": "application/json"};
  return (await asked(path, {method: "POST", headers, body: JSON.stringify(body)})).json();
}

async function exchange(secret) {
  me = await post("login", {secret});
  keep(me.csrf);
}

/** A query from the fields that are set. */
export function query(fields) {
  const set = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return set.length ? `?${new URLSearchParams(set)}` : "";
}

export const may = (right) => me !== null && me.rights.includes(right) && !(me.read_only && !right.startsWith("read"));

/** Know who we are: by the link, by a login of before, or by asking. */
export async function begin() {
  const link = /^#login=(\w+)$/.exec(location.hash);
  if (link) {
    history.replaceState(null, "", location.pathname + location.search);
    try {
      await exchange(link[1]);
      return;
    } catch {
      /* spent: an earlier login may still be good */
    }
  }
  try {
    me = await get("me");
  } catch (problem) {
    if (problem.status !== 401) throw problem;
    await logIn();
  }
}

/** Go on with a login that another tab has made since; else ask for a key until one is right. */
async function logIn() {
  if (kept() && kept() !== token) {
    token = kept();
    try {
      me = await get("me");
      return render();
    } catch (problem) {
      if (problem.status !== 401) throw problem;
    }
  }
  return ask();
}

function ask() {
  return new Promise((done) => {
    const field = h("input", attrs({
      type: "password",
      name: "key",
      autocomplete: "current-password",
      required: true,
      id: "key",
    }));
    const note = h(
      "p.muted",
      "Or open the link that ",
      h("code", "interlock serve"),
      " printed. It works once; start it again for a new one.",
    );
    const form = h(
      "form.card.login",
      attrs({onsubmit: submit}),
      h("h1", "Who are you?"),
      h("label", attrs({for: "key"}), "API key"),
      field,
      h("button.primary", "Log in"),
      note,
    );
    // Nothing behind a dialog can be reached.
    for (const each of document.querySelectorAll("dialog[open]")) each.close();
    fill(document.getElementById("main"), form);
    field.focus();
    async function submit(event) {
      event.preventDefault();
      try {
        await exchange(field.value);
        await render();
        done();
      } catch (problem) {
        fill(note, trouble(problem));
        field.select();
      }
    }
  });
}

export async function logOut() {
  await post("logout");
  keep("");
  location.assign("/");
}

/** The events of a response that is a stream; read by fetch, because an EventSource cannot carry the token. */
async function* events(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    const blocks = (rest + decoder.decode(value, {stream: true})).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = {};
      for (const line of block.split("\n")) {
        const at = line.indexOf(": ");
        if (at > 0) event[line.slice(0, at)] = line.slice(at + 2);
      }
      yield event;
    }
  }
}

/** A stream for as long as the page is shown; closed while the tab is hidden, polled for when it fails. */
export function live(inside, path, handlers, poll) {
  let stream = null;
  let timer = null;
  let retry = null;
  let last = "";
  const mark = document.getElementById("live");
  const show = (state) => mark && change(mark, {"data-state": state, title: `Live updates: ${state}`});
  async function open() {
    clearTimeout(retry);
    if (stream || document.hidden) return;
    const mine = (stream = new AbortController());
    let again = true;
    try {
      const headers = signed(last ? {"Last-Event-ID": last} : {});
      const response = await fetch(BASE + path, {headers, signal: mine.signal, cache: "no-store"});
      again = response.ok; // a refusal would be the same the next time; polling finds out what to do
      if (again) await follow(response.body, mine);
    } catch {
      /* no connection, or closed by this page */
    }
    if (stream !== mine) return;
    stream = null;
    show("off");
    if (!timer && poll) timer = setInterval(() => document.hidden || poll(), 5000);
    if (again) retry = setTimeout(open, RETRY_MS);
  }
  async function follow(body, mine) {
    show("on");
    clearInterval(timer);
    timer = null;
    for await (const event of events(body)) {
      if (stream !== mine) return;
      last = event.id || last;
      if (handlers[event.event]) handlers[event.event](JSON.parse(event.data));
    }
  }
  function close() {
    clearTimeout(retry);
    const open = stream;
    stream = null;
    if (open) open.abort();
    show("none");
  }
  const turn = () => (document.hidden ? close() : (open(), poll && poll()));
  document.addEventListener("visibilitychange", turn);
  open();
  onLeave(inside, () => {
    document.removeEventListener("visibilitychange", turn);
    clearInterval(timer);
    close();
  });
}
