// XState 5. `actor` sends to a started actor; `pure` calls transition() and runs the list of actions it returns.
import { assign, createActor, createMachine, initialTransition, setup, transition } from 'xstate';
import { createRequire } from 'node:module';
import { NESTED, ORDER, REGIONS, check, cycle, serve, timed } from './worker.mjs';

const way = process.argv[2];
const { version } = createRequire(import.meta.url)('xstate/package.json');

const toggle = createMachine({
  initial: 'off',
  states: { off: { on: { TOGGLE: 'on' } }, on: { on: { TOGGLE: 'off' } } },
});

function orderChart() {
  const states = Object.fromEntries(ORDER.states.map(name => [name, { on: {} }]));
  for (const [source, event, guard, target] of ORDER.transitions) {
    (states[source].on[event] ||= []).push({ target, guard, actions: 'bump' });
  }
  return setup({
    guards: {
      has_items: ({ context }) => context.items > 0,
      enough: ({ context, event }) => event.amount >= context.total,
      positive: ({ event }) => event.amount > 0,
      in_time: ({ event }) => event.days <= 30,
    },
    actions: { bump: assign(({ context, event }) => ({ count: context.count + 1, last: event.type })) },
  }).createMachine({ context: { ...ORDER.context }, initial: 'draft', states });
}
const order = orderChart();

const moves = { entries: 0, exits: 0 };
const entry = () => { moves.entries++; };
const exit = () => { moves.exits++; };

function nestedState(id, states) {
  const on = {};
  for (const [source, event, target] of NESTED.transitions) if (source === id) on[event] = '#' + target;
  return states ? { id, entry, exit, on, initial: Object.keys(states)[0], states } : { id, entry, exit, on };
}

function nestedChart() {
  const leaves = names => Object.fromEntries(names.map(name => [name, nestedState(name)]));
  const middles = tree => Object.fromEntries(
    Object.entries(tree).map(([name, names]) => [name, nestedState(name, leaves(names))]));
  const states = Object.fromEntries(
    Object.entries(NESTED.tree).map(([name, tree]) => [name, nestedState(name, middles(tree))]));
  return createMachine({ id: 'root', initial: 'A', states });
}
const nested = nestedChart();

const region = () => ({ initial: 'off', states: { off: { on: { TICK: 'on' } }, on: { on: { TICK: 'off' } } } });
const regions = createMachine({ type: 'parallel', states: Object.fromEntries(REGIONS.map(name => [name, region()])) });

const execute = actions => {
  for (let position = 0; position < actions.length; position++) {
    const action = actions[position];
    if (action.exec) action.exec(action.info, action.params);
  }
};

function actorDrive(chart, events, begun = () => {}) {
  const actor = createActor(chart).start();
  begun();
  const ns = timed(events, event => actor.send(event));
  return [ns, actor.getSnapshot()];
}

function pureDrive(chart, events, begun = () => {}) {
  let [snapshot, first] = initialTransition(chart);
  execute(first);
  begun();
  const ns = timed(events, event => {
    const [next, actions] = transition(chart, snapshot, event);
    execute(actions);
    snapshot = next;
  });
  return [ns, snapshot];
}

const drive = way === 'actor' ? actorDrive : pureDrive;

function driveOrder(count) {
  const [ns, snapshot] = drive(order, cycle(ORDER.events.map(([type, data]) => ({ type, ...data })), count));
  check.order(snapshot.value, snapshot.context, count);
  return ns;
}

serve({
  name: way === 'actor' ? 'xstate, actor.send' : 'xstate, transition()',
  version,
  drives: {
    W1(count) {
      const [ns, snapshot] = drive(toggle, cycle([{ type: 'TOGGLE' }], count));
      check.toggle(snapshot.value, count);
      return ns;
    },
    W2: driveOrder,
    W3(count) {
      const events = cycle(NESTED.events.map(type => ({ type })), count);
      const [ns, snapshot] = drive(nested, events, () => { moves.entries = moves.exits = 0; });
      check.nested(snapshot.matches({ A: { A1: 'A1a' } }), moves, count);
      return ns;
    },
    W4(count) {
      const [ns, snapshot] = drive(regions, cycle([{ type: 'TICK' }], count));
      check.regions(REGIONS.map(name => snapshot.value[name]), count);
      return ns;
    },
    W6: driveOrder,
  },
  create: () => way === 'actor' ? () => createActor(order).start() : () => initialTransition(order)[0],
});
