// XState 5. `actor` sends to a started actor; `pure` calls transition() and runs the list of actions it returns.
// W7 to W10 in its favour: the clock only counts, invoked actors do nothing, and the driver sends their result to the
// parent. `pure` counts the actions that describe timers, invokes, sends and messages, and does not run them.
import { assign, createActor, createMachine, emit, fromCallback, initialTransition, sendTo, setup, transition } from 'xstate';
import { createRequire } from 'node:module';
import { NESTED, ORDER, REGIONS, SCENARIOS, check, checkEffects, cycle, serve, timed } from './worker.mjs';

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

const add = (totals, type) => { totals[type] = (totals[type] || 0) + 1; };
let totals = {};

const clock = { setTimeout: () => { add(totals, 'timer'); return 1; }, clearTimeout: () => { add(totals, 'timer_cancel'); } };
const actors = { work: fromCallback(() => { add(totals, 'invoke'); }) };
const counted = assign({ n: ({ context }) => context.n + 1 });
const input = ({ context }) => ({ n: context.n });

const reminder = createMachine({
  initial: 'open',
  context: { n: 0 },
  states: {
    open: { after: { 86400000: 'expired' }, on: { go: { target: 'checked', actions: counted } } },
    checked: { after: { 172800000: 'expired' }, on: { go: { target: 'open', actions: counted } } },
    expired: {},
  },
});

const payment = setup({ actors }).createMachine({
  initial: 'idle',
  context: { n: 0, charge: null },
  states: {
    idle: { on: { pay: { target: 'charge_pending', actions: counted } } },
    charge_pending: {
      invoke: {
        id: 'charge', src: 'work', input,
        onDone: { target: 'idle', actions: assign({ charge: ({ event }) => event.output.charge }) },
      },
    },
  },
});

// Sagas are not part of XState: each step is a state that invokes, and the error of the third leads to the compensation.
const fulfilment = setup({ actors }).createMachine({
  initial: 'idle',
  context: { n: 0, stock: null, charge: null },
  states: {
    idle: { on: { start: { target: 'stock', actions: counted } } },
    stock: {
      invoke: {
        id: 'stock', src: 'work', input,
        onDone: { target: 'charge', actions: assign({ stock: ({ event }) => event.output }) }, onError: 'idle',
      },
    },
    charge: {
      invoke: {
        id: 'charge', src: 'work', input,
        onDone: { target: 'parcel', actions: assign({ charge: ({ event }) => event.output }) },
        onError: 'stock_compensation',
      },
    },
    parcel: { invoke: { id: 'parcel', src: 'work', input, onDone: 'booked', onError: 'stock_compensation' } },
    stock_compensation: {
      invoke: {
        id: 'stock_compensation', src: 'work', input: ({ context }) => ({ compensates: context.stock }),
        onDone: { target: 'idle', actions: assign({ stock: null }) }, onError: 'unsettled',
      },
    },
    booked: {},
    unsettled: {},
  },
});

const other = createActor(fromCallback(({ receive }) => receive(() => { add(totals, 'send'); }))).start();
const noticed = (call, sent, message) => [
  { type: 'call', params: ({ context }) => ({ name: call, amount: context.amount }) },
  sendTo(other, ({ context }) => ({ type: sent, n: context.n })),
  emit(({ context }) => ({ type: message, amount: context.amount })),
];
const notices = setup({ actions: { call: () => { add(totals, 'call'); } } }).createMachine({
  initial: 'shipped',
  context: { n: 0, amount: 5 },
  states: {
    paid: {
      entry: noticed('receipt.send', 'goods.wanted', 'order.paid'),
      on: { ship: { target: 'shipped', actions: counted } },
    },
    shipped: {
      entry: noticed('customer.notify', 'parcel.ready', 'order.shipped'),
      on: { pay: { target: 'paid', actions: counted } },
    },
  },
});

const EFFECT_CHARTS = { W7: reminder, W8: payment, W9: fulfilment, W10: notices };
const OUTPUTS = {
  'xstate.raise': 'timer', 'xstate.cancel': 'timer_cancel', 'xstate.spawnChild': 'invoke', 'call': 'call',
  'xstate.sendTo': 'send', 'xstate.emit': 'message',
};

// The result of an invoke as XState names it.
function eventOf([name, data]) {
  const [word, id] = name.split('.');
  if (word === 'done') return { type: 'xstate.done.actor.' + id, output: data };
  return word === 'error' ? { type: 'xstate.error.actor.' + id, error: data } : { type: name };
}

function driveEffects(workload, count) {
  const chart = EFFECT_CHARTS[workload];
  const events = SCENARIOS[workload].events.map(eventOf);
  let ns, snapshot, found;
  if (way === 'actor') {
    const actor = createActor(chart, { clock });
    actor.on('*', () => { add(totals, 'message'); });
    actor.start();
    totals = {};
    ns = timed(cycle(events, count), event => actor.send(event));
    for (const event of events) actor.send(event);
    [snapshot, found] = [actor.getSnapshot(), totals];
    totals = {};
    actor.stop();
  } else {
    let [next, actions] = initialTransition(chart);
    totals = {};
    const send = event => {
      [next, actions] = transition(chart, next, event);
      for (const { type } of actions) if (type in OUTPUTS) add(totals, OUTPUTS[type]);
    };
    ns = timed(cycle(events, count), send);
    for (const event of events) send(event);
    [snapshot, found] = [next, totals];
  }
  checkEffects(workload, snapshot.value, snapshot.context.n, found, count);
  return ns;
}

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
    ...Object.fromEntries(Object.keys(EFFECT_CHARTS).map(name => [name, count => driveEffects(name, count)])),
  },
  create: () => way === 'actor' ? () => createActor(order).start() : () => initialTransition(order)[0],
});
