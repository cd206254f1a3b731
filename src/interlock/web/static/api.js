// The HTTP API: requests and their problems, the session, and live streams.

import {attrs, change, fill, h, onLeave, render, toast} from "/static/dom.js";

const BASE = "/api/v1/";
const TOKEN = "interlock-token";
const RETRY_MS = 2000;
export let me = null;
let token = storedToken();

// The cookie alone is not valid: every request carries the CSRF token of the session, too. A browser sends a cookie to
// every port of this host, but shares local storage with no other port.
function storedToken() {
  try {
    return localStorage.getItem(TOKEN) || "";
  } catch {
    return ""; // storage is disabled: the session lasts as long as this page
  }
}

function storeToken(value) {
  token = value;
  try {
    if (value) localStorage.setItem(TOKEN, value);
    else localStorage.removeItem(TOKEN);
  } catch {
    /* storage is disabled: the session lasts as long as this page */
  }
}

const withToken = (headers = {}) => ({...headers, "X-Interlock-CSRF": token});

/** A problem document of the server. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title);
    Object.assign(this, body, {status});
  }
}

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(BASE + path, {...options, headers: withToken(options.headers)});
  } catch {
    throw new Problem(0, {title: "Server unreachable", detail: "The server did not respond.", hint: "Check that it is running."});
  }
  if (response.ok) return response;
  let body = {title: response.statusText || "Error", detail: `The server responded with status ${response.status}.`};
  try {
    body = await response.json();
  } catch {
    /* not a problem document, perhaps from a proxy */
  }
  if (response.status === 401 && me) {
    me = null;
    await signIn();
    if (!options.method) return request(path, options);
    // Another user may have signed in now, so a write is not repeated.
    toast("Not sent: session expired", "bad");
  }
  throw new Problem(response.status, body);
}

export const get = async (path) => (await request(path)).json();
export const text = async (path) => (await request(path)).text();

export async function post(path, body = {}) {
  const headers = {"Content-Type": "application/json"};
  return (await request(path, {method: "POST", headers, body: JSON.stringify(body)})).json();
}

async function exchange(secret) {
  me = await post("login", {secret});
  storeToken(me.csrf);
}

/** A query string of the fields that are set. */
export function query(fields) {
  const set = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return set.length ? `?${new URLSearchParams(set)}` : "";
}

export const may = (right) => me !== null && me.rights.includes(right) && !(me.read_only && !right.startsWith("read"));

/** Find out who the user is: by the sign-in link, by a stored session, or by asking for a key. */
export async function authenticate() {
  let isLinkInvalid = false;
  const link = /^#login=(\w+)$/.exec(location.hash);
  if (link) {
    history.replaceState(null, "", location.pathname + location.search);
    try {
      await exchange(link[1]);
      return;
    } catch {
      /* a stored session may still be valid */
      isLinkInvalid = true;
    }
  }
  try {
    me = await get("me");
  } catch (problem) {
    if (problem.status !== 401) throw problem;
    await signIn(isLinkInvalid ? {title: "Sign-in failed", detail: "The link is invalid or was used before."} : null);
  }
}

/** Use the session that another tab has started since; else ask for a key until one is valid. */
async function signIn(earlier = null) {
  if (storedToken() && storedToken() !== token) {
    token = storedToken();
    try {
      me = await get("me");
      return render();
    } catch (problem) {
      if (problem.status !== 401) throw problem;
    }
  }
  return askForKey(earlier);
}

function askForKey(earlier) {
  return new Promise((done) => {
    const field = h("input", attrs({
      type: "password",
      name: "key",
      autocomplete: "current-password",
      required: true,
      id: "key",
    }));
    const error = h("div");
    const showError = ({title, detail}) =>
      fill(error, h("div.note.bad", attrs({role: "alert"}), h("p", h("b", title)), h("p", detail)));
    const help = h(
      "p.muted",
      "Or open the link that ",
      h("code", "interlock serve"),
      " printed. It works once; restart the server for a new link.",
    );
    const form = h(
      "form.card.login",
      attrs({onsubmit: submit}),
      h("h1", "Sign in to Interlock"),
      h("label", attrs({for: "key"}), "API key"),
      field,
      error,
      h("button.primary", "Sign in"),
      help,
    );
    // An open dialog would cover the form.
    for (const each of document.querySelectorAll("dialog[open]")) each.close();
    document.title = "Sign in · Interlock";
    fill(document.getElementById("main"), form);
    if (earlier) showError(earlier);
    field.focus();
    async function submit(event) {
      event.preventDefault();
      try {
        await exchange(field.value);
        await render();
        done();
      } catch (problem) {
        showError(problem);
        field.select();
      }
    }
  });
}

export async function signOut() {
  await post("logout");
  storeToken("");
  location.assign("/");
}

/** The events of a stream, read with fetch: an EventSource cannot send the token. */
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

/** Follow a stream while the page is shown; it is closed while the tab is hidden and replaced by polling if it fails. */
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
      const headers = withToken(last ? {"Last-Event-ID": last} : {});
      const response = await fetch(BASE + path, {headers, signal: mine.signal, cache: "no-store"});
      again = response.ok; // a refused stream is not retried; polling shows the reason
      if (again) await follow(response.body, mine);
    } catch {
      /* the server is unreachable, or this page closed the stream */
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
