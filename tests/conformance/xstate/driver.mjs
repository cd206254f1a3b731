// Runs definitions on the real XState: one JSON object per line in, one per line out, in one process.
//
//   in   {definition, events: [{type, ...} | {advance: ms}]}
//   out  {steps: [{trace, configuration, context, status}], refused?}
//
// Built-ins that our JSON writes by type (`xstate.raise`, `interlock.assign`, ...) become XState's own functions here;
// every other action only records its name. Expressions are of the kind that Python and JavaScript read alike.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(new URL("../node/package.json", import.meta.url));
const { and, assign, cancel, createActor, createMachine, not, or, raise, SimulatedClock, stateIn } = require("xstate");

const MICROSTEPS_MAX = 300;

const evaluated = (text) => new Function("context", "event", `return (${text});`);
const value = (given) => {
  if (typeof given === "string" && given.startsWith("=")) {
    const compute = evaluated(given.slice(1));
    return ({ context, event }) => compute(context, event);
  }
  return given;
};

const mapped = (object, change) => Object.fromEntries(Object.entries(object).map(([key, each]) => [key, change(each)]));
const listed = (given) => (given === undefined ? [] : Array.isArray(given) ? given : [given]);

const guardOf = (given) => {
  if (given === undefined || typeof given === "string") return given;
  const params = given.params ?? {};
  switch (given.type) {
    case "interlock.expression": {
      const compute = evaluated(params.expression);
      return ({ context, event }) => Boolean(compute(context, event));
    }
    case "xstate.and": return and(params.guards.map(guardOf));
    case "xstate.or": return or(params.guards.map(guardOf));
    case "xstate.not": return not(guardOf(params.guards[0]));
    case "xstate.stateIn": return stateIn(params.stateValue);
    default: return given;
  }
};

const actionOf = (given) => {
  if (typeof given === "string") return given;
  const params = given.params ?? {};
  switch (given.type) {
    case "interlock.assign": return assign(mapped(params.values, value));
    case "xstate.raise": return raise(params.event, { delay: params.delay, id: params.id });
    case "xstate.cancel": return cancel(params.sendId);
    default: return given;
  }
};

const transitionOf = (given) => {
  if (Array.isArray(given)) return given.map(transitionOf);
  if (given === null || typeof given !== "object") return given;
  return { ...given, guard: guardOf(given.guard), actions: listed(given.actions).map(actionOf) };
};

const stateOf = (given) => {
  const made = { ...given };
  for (const key of ["entry", "exit"]) if (key in made) made[key] = listed(made[key]).map(actionOf);
  for (const key of ["always", "onDone"]) if (key in made) made[key] = transitionOf(made[key]);
  for (const key of ["on", "after"]) if (key in made) made[key] = mapped(made[key], transitionOf);
  if (made.initial && typeof made.initial === "object") {
    made.initial = { ...made.initial, actions: listed(made.initial.actions).map(actionOf) };
  }
  if (made.invoke) {
    made.invoke = listed(made.invoke).map((each) => ({
      ...each,
      ...("onDone" in each ? { onDone: transitionOf(each.onDone) } : {}),
      ...("onError" in each ? { onError: transitionOf(each.onError) } : {}),
    }));
  }
  if (made.states) made.states = mapped(made.states, stateOf);
  return made;
};

// Every name recorded: a proxy cannot stand in for the actions, because `provide` copies its own keys.
const names = (given, found) => {
  if (Array.isArray(given)) given.forEach((each) => names(each, found));
  else if (given && typeof given === "object") {
    for (const key of ["entry", "exit", "actions"]) {
      for (const each of listed(given[key])) {
        if (typeof each === "string") found.add(each);
        else if (each && typeof each.type === "string") found.add(each.type);
      }
    }
    Object.values(given).forEach((each) => names(each, found));
  }
  return found;
};

const sources = (given, found) => {
  if (given && typeof given === "object") {
    if (typeof given.src === "string") found.add(given.src);
    Object.values(given).forEach((each) => sources(each, found));
  }
  return found;
};

// A child that only records when it is created and when it is started.
const actorOf = (name, trace) => ({
  getInitialSnapshot: () => {
    trace.push(`invoke:${name}`);
    return { status: "active", output: undefined, error: undefined, input: undefined };
  },
  getPersistedSnapshot: (snapshot) => snapshot,
  start: () => { trace.push(`started:${name}`); },
  transition: (snapshot) => snapshot,
});

const run = ({ definition, events }) => {
  const trace = [];
  const record = (name) => () => { trace.push(name); };
  const actions = Object.fromEntries([...names(definition, new Set())].map((name) => [name, record(name)]));
  const guards = {
    yes: () => true,
    no: () => false,
    fails: () => { throw new Error("this guard fails"); },
  };
  const actors = Object.fromEntries([...sources(definition, new Set())].map((name) => [name, actorOf(name, trace)]));
  actions.fails = () => { throw new Error("this action fails"); };
  const steps = [];
  const clock = new SimulatedClock();
  let actor;
  const note = () => {
    const snapshot = actor.getSnapshot();
    const atoms = snapshot._nodes.filter((each) => each.type === "atomic" || each.type === "final");
    steps.push({
      trace: trace.splice(0),
      configuration: atoms.sort((a, b) => a.order - b.order).map((each) => each.path.join(".")),
      context: snapshot.context,
      status: snapshot.status,
    });
    return snapshot.status === "active";
  };
  try {
    const config = { ...stateOf(definition), options: { maxIterations: MICROSTEPS_MAX } };
    actor = createActor(createMachine(config, { actions, actors, guards }), { clock });
  } catch (error) {
    return { steps, refused: String(error.message) };
  }
  actor.subscribe({ error: () => {} });
  actor.start();
  let going = note();
  for (const event of events) {
    if (!going) break;
    if ("advance" in event) clock.increment(event.advance);
    else actor.send(event);
    going = note();
  }
  return { steps };
};

console.warn = () => {};
for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(run(JSON.parse(line)))}\n`);
}
