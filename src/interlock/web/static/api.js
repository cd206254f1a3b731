// Talking to the server: requests with their problems, the login, and live streams.

import {attrs, change, fill, h, onLeave, render, toast, trouble} from "/static/elements.js";

const BASE = "/api/v1/";
export let me = null;

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
    response = await fetch(BASE + path, options);
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
  const headers = {"Content-Type": "application/json", "X-Interlock-CSRF": (me && me.csrf) || ""};
  return (await asked(path, {method: "POST", headers, body: JSON.stringify(body)})).json();
}

/** A query from the fields that are set. */
export function query(fields) {
  const set = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return set.length ? `?${new URLSearchParams(set)}` : "";
}

export const may = (right) => me !== null && me.rights.includes(right) && !(me.read_only && !right.startsWith("read"));

/** Know who we are: by the cookie, by the link's token, or by asking. */
export async function begin() {
  const token = /^#login=(\w+)$/.exec(location.hash);
  if (token) {
    history.replaceState(null, "", location.pathname + location.search);
    try {
      me = await post("login", {secret: token[1]});
      return;
    } catch {
      /* spent: the cookie may still be good */
    }
  }
  try {
    me = await get("me");
  } catch (problem) {
    if (problem.status !== 401) throw problem;
    await logIn();
  }
}

/** Ask for a key until one is right. */
function logIn() {
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
        me = await post("login", {secret: field.value});
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
  location.assign("/");
}

/** A stream for as long as the page is shown; closed while the tab is hidden, polled for when it fails. */
export function live(inside, path, handlers, poll) {
  let source = null;
  let timer = null;
  const mark = document.getElementById("live");
  const show = (state) => mark && change(mark, {"data-state": state, title: `Live updates: ${state}`});
  function open() {
    if (source || document.hidden) return;
    source = new EventSource(BASE + path);
    source.onopen = () => {
      show("on");
      clearInterval(timer);
      timer = null;
    };
    source.onerror = () => {
      if (source && source.readyState === EventSource.CLOSED) close();
      show("off");
      if (!timer && poll) timer = setInterval(() => document.hidden || poll(), 5000);
    };
    for (const [name, act] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => act(JSON.parse(event.data)));
    }
  }
  function close() {
    if (source) source.close();
    source = null;
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
