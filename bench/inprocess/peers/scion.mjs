// SCION (@scion-scxml/core): the algorithm of the SCXML recommendation in JavaScript.
// W7 to W10 use actions, in its favour: its delayed sends start timers of Node.js, and the core has no invoke.
import { createRequire } from 'node:module';
import { NESTED, ORDER, REGIONS, SCENARIOS, check, checkEffects, cycle, serve, timed } from './worker.mjs';

const require = createRequire(import.meta.url);
const { Statechart } = require('@scion-scxml/core');
const { version } = require('@scion-scxml/core/package.json');

function started(definition) {
  const entity = new Statechart(() => definition); // a plain object would be copied as JSON, and lose its functions
  entity.start();
  return entity;
}

function orderDefinition() {
  const context = { ...ORDER.context };
  const guards = {
    has_items: () => context.items > 0,
    enough: event => event.data.amount >= context.total,
    positive: event => event.data.amount > 0,
    in_time: event => event.data.days <= 30,
  };
  const bump = event => { context.count++; context.last = event.name; };
  const transitionsOf = id => ORDER.transitions.filter(([source]) => source === id).map(
    ([, event, guard, target]) => ({ event, target, cond: guards[guard], onTransition: bump }));
  return [context, { states: ORDER.states.map(id => ({ id, transitions: transitionsOf(id) })) }];
}

function driveOrder(count) {
  const [context, definition] = orderDefinition();
  const entity = started(definition);
  const ns = timed(cycle(ORDER.events.map(([name, data]) => ({ name, data })), count), event => entity.gen(event));
  check.order(entity.getConfiguration()[0], context, count);
  return ns;
}

const DELAYS = { open: 86400000, checked: 172800000 };

function driveEffects(workload, count) {
  const { home, states, edges, events } = SCENARIOS[workload];
  const context = { n: 0, stock: null, charge: null, amount: 5 };
  let outputs = [];
  const add = (type, payload) => { outputs.push({ type, payload }); };
  const actions = {
    count: () => { context.n++; },
    keep: (state, event) => { context[state] = event.data?.charge ?? event.data; },
    set_timer: state => add('timer', { name: state, delay: DELAYS[state] }),
    cancel_timer: state => add('timer_cancel', { name: state }),
    invoke: state => add('invoke', { id: state, input: { n: context.n } }),
    compensate: state => add('invoke', { id: state, input: { compensates: context.stock } }),
    notify: state => {
      add('call', { name: state, amount: context.amount });
      add('send', { event: state, n: context.n });
      add('message', { type: state, amount: context.amount });
    },
  };
  const run = (name, state) => name && (event => actions[name](state, event));
  const order = [home, ...Object.keys(states).filter(name => name !== home)]; // the first state is the initial one
  const entity = started({
    states: order.map(id => ({
      id,
      onEntry: run(states[id][0], id) ?? undefined,
      onExit: run(states[id][1], id) ?? undefined,
      transitions: edges.filter(([, source]) => source === id).map(
        ([event, source, target, action]) => ({ event, target, onTransition: run(action, source) ?? undefined })),
    })),
  });
  const totals = {};
  const send = event => {
    outputs = [];
    entity.gen(event);
    for (const { type } of outputs) totals[type] = (totals[type] || 0) + 1;
  };
  const given = events.map(([name, data]) => ({ name, data }));
  const ns = timed(cycle(given, count), send);
  given.forEach(send);
  checkEffects(workload, entity.getConfiguration()[0], context.n, totals, count);
  return ns;
}

serve({
  name: 'scion-core',
  version,
  drives: {
    W1(count) {
      const entity = started({
        states: [
          { id: 'off', transitions: [{ event: 'TOGGLE', target: 'on' }] },
          { id: 'on', transitions: [{ event: 'TOGGLE', target: 'off' }] },
        ],
      });
      const ns = timed(cycle([{ name: 'TOGGLE' }], count), event => entity.gen(event));
      check.toggle(entity.getConfiguration()[0], count);
      return ns;
    },
    W2: driveOrder,
    W3(count) {
      const moves = { entries: 0, exits: 0 };
      const state = (id, states) => ({
        id,
        states,
        onEntry: () => { moves.entries++; },
        onExit: () => { moves.exits++; },
        transitions: NESTED.transitions.filter(([source]) => source === id).map(
          ([, event, target]) => ({ event, target })),
      });
      const middles = tree => Object.entries(tree).map(([name, names]) => state(name, names.map(leaf => state(leaf))));
      const entity = started({ states: Object.entries(NESTED.tree).map(([name, tree]) => state(name, middles(tree))) });
      moves.entries = moves.exits = 0;
      const ns = timed(cycle(NESTED.events.map(name => ({ name })), count), event => entity.gen(event));
      check.nested(entity.getConfiguration()[0] === 'A1a', moves, count);
      return ns;
    },
    W4(count) {
      const part = name => ({
        id: name,
        states: [
          { id: name + 'off', transitions: [{ event: 'TICK', target: name + 'on' }] },
          { id: name + 'on', transitions: [{ event: 'TICK', target: name + 'off' }] },
        ],
      });
      const entity = started({ states: [{ id: 'p', $type: 'parallel', states: REGIONS.map(part) }] });
      const ns = timed(cycle([{ name: 'TICK' }], count), event => entity.gen(event));
      check.regions(entity.getConfiguration().map(name => name.slice(2)), count);
      return ns;
    },
    W6: driveOrder,
    ...Object.fromEntries(Object.keys(SCENARIOS).map(name => [name, count => driveEffects(name, count)])),
  },
  create: () => () => started(orderDefinition()[1]),
});
