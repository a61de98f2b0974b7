// What is known of the fleet, kept by events, and what follows from it.

const SECTIONS = /** @type {const} */ (["view", "instances", "routes", "upstreams", "queues", "pools", "jobs", "quota", "rings", "alerts", "changes"]);
const AVAILABLE = new Set(["up", "unchecked", "failing"]);

export const fleet = /** @type {Fleet} */ (/** @type {unknown} */ (Object.fromEntries(SECTIONS.map((each) => [each, new Map()]))));

/** @type {Map<string, Load> | null} computed once for each event */
let loads = null;

/** In place, so that an event costs what it changes. @param {FleetChange} change @param {boolean} isAll that there is */
export function apply(change, isAll) {
  loads = null;
  for (const section of SECTIONS) {
    const entries = /** @type {Map<string, any>} */ (fleet[section]);
    if (isAll) entries.clear();
    for (const [key, value] of Object.entries(change[section] ?? {})) {
      if (value === null) entries.delete(key);
      else entries.set(key, value);
    }
  }
}

/** @template T @param {Iterable<T>} all @param {(each: T) => number | null | undefined} of */
export function total(all, of) {
  let sum = 0;
  for (const each of all) sum += of(each) ?? 0;
  return sum;
}

/** What instances do together: the median is weighed by their requests, p99 is that of the slowest. @param {Pick<Instance, Figured>[]} all */
export function together(all) {
  const weight = total(all, (each) => (each.p50 === null ? 0 : each.rate));
  return {
    rate: total(all, (each) => each.rate), errors: total(all, (each) => each.error_rate), inflight: total(all, (each) => each.inflight),
    p50: weight ? total(all, (each) => (each.p50 ?? 0) * (each.rate ?? 0)) / weight : null,
    p99: Math.max(0, ...all.map((each) => each.p99 ?? 0)) || null,
  };
}

/** What the whole fleet does now. */
export function totals() {
  const bounded = [...fleet.upstreams.values()].filter(room);
  return {
    ...together([...fleet.instances.values()]), waiting: total(fleet.queues.values(), (each) => each.depth),
    slots: total(bounded, room), used: total(bounded, (each) => each.inflight),
    jobs: total(fleet.jobs.values(), (each) => (each.queued ?? 0) + (each.retrying ?? 0) + (each.buffered ?? 0)),
  };
}

/** How many requests an upstream takes at once; 0: nobody has said. @param {Upstream} upstream */
export function room(upstream) {
  return upstream.capacity || (upstream.slots > 1 ? upstream.slots : 0);
}

/** Whether requests go there now. @param {Upstream} upstream */
function isUsed(upstream) {
  return !upstream.drain && AVAILABLE.has(upstream.health);
}

/** @param {string} path of a route */
export function load(path) {
  if (loads) return loads.get(path) ?? { room: 0, inflight: 0, used: 0, queues: [] };
  const queues = Map.groupBy(fleet.queues.values(), (each) => each.route);
  loads = new Map([...fleet.routes].map(([path, { members }]) => {
    const all = members.flatMap((member) => fleet.upstreams.get(member) ?? []), used = all.filter(isUsed);
    return [path, { room: total(used, room), inflight: total(all, (each) => each.inflight), used: used.length, queues: queues.get(path) ?? [] }];
  }));
  return load(path);
}

/** What each of its routes would have left if this upstream drained, at the present load. `share`: of the room that
 * would be taken, null where that is not known. @param {Upstream | undefined} upstream */
export function ifDrained(upstream) {
  if (!upstream) return [];
  return upstream.routes.filter((path) => fleet.routes.has(path)).map((path) => {
    const now = load(path), isIn = isUsed(upstream), used = now.used - (isIn ? 1 : 0), left = now.room - (isIn ? room(upstream) : 0);
    return { path, used, room: left, inflight: now.inflight, share: used === 0 ? Infinity : left > 0 ? now.inflight / left : null };
  });
}

/** @param {string} right @param {string} [path] of the route that it is about */
export function may(right, path) {
  const { rights = [], prefixes } = fleet.view.get("self") ?? {};
  if (rights === null || rights.includes("admin")) return true;
  const isBelow = (/** @type {string} */ prefix) => prefix === "/" || path === prefix || path?.startsWith(`${prefix}/`);
  return rights.includes(right) && (path === undefined || !prefixes || prefixes.some(isBelow));
}
