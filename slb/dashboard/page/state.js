// What is known of the fleet, kept by events; what follows from it, computed once for each event.

/** @type {Section[]} */
export const SECTIONS = ["view", "instances", "routes", "upstreams", "queues", "pools", "jobs", "quota", "rings", "alerts", "changes"];
const AVAILABLE = new Set(["up", "unchecked", "failing"]);

/** @returns {Fleet} */
export function empty() {
  return /** @type {any} */ (Object.fromEntries(SECTIONS.map((each) => [each, new Map()])));
}

/** In place, so that an event costs what it changes. @param {Fleet} fleet @param {FleetChange} change */
export function apply(fleet, change) {
  for (const section of SECTIONS) {
    const entries = /** @type {Map<string, any>} */ (fleet[section]);
    for (const [key, value] of Object.entries(change[section] ?? {})) {
      if (value === null) entries.delete(key);
      else entries.set(key, value);
    }
  }
}

/** @param {Fleet} fleet @returns {View | undefined} */
export function viewOf(fleet) {
  return fleet.view.get("self");
}

/** What the whole fleet does now. @param {Fleet} fleet */
export function totals(fleet) {
  const sum = { rate: 0, errors: 0, inflight: 0, p50: /** @type {number | null} */ (null), p99: /** @type {number | null} */ (null), waiting: 0,
    slots: 0, used: 0, jobs: 0 };
  let weighed = 0, weight = 0;
  for (const each of fleet.instances.values()) {
    if (each.rate === null) continue; // it has shown nothing yet
    sum.rate += each.rate;
    sum.errors += each.error_rate ?? 0;
    sum.inflight += each.inflight ?? 0;
    if (each.p99 !== null) sum.p99 = Math.max(sum.p99 ?? 0, each.p99);
    if (each.p50 !== null && each.rate > 0) [weighed, weight] = [weighed + each.p50 * each.rate, weight + each.rate];
  }
  if (weight) sum.p50 = weighed / weight;
  for (const each of fleet.queues.values()) sum.waiting += each.depth;
  for (const each of fleet.jobs.values()) sum.jobs += (each.queued ?? 0) + (each.retrying ?? 0) + (each.buffered ?? 0);
  for (const each of fleet.upstreams.values()) {
    sum.slots += room(each);
    sum.used += room(each) ? each.inflight : 0;
  }
  return sum;
}

/** How many requests an upstream takes at once; 0: nobody has said. @param {Upstream} upstream */
export function room(upstream) {
  return upstream.capacity || (upstream.slots > 1 ? upstream.slots : 0);
}

/** Whether requests go there now. @param {Upstream | undefined} upstream */
export function isUsed(upstream) {
  return upstream !== undefined && !upstream.drain && AVAILABLE.has(upstream.health);
}

/** @type {Load} */
export const NO_LOAD = { room: 0, inflight: 0, used: 0 };

/** Of each route: room and requests in flight of the upstreams that are used, and how many those are.
 * @param {Fleet} fleet @returns {Map<string, Load>} */
export function loads(fleet) {
  const found = new Map();
  for (const [path, route] of fleet.routes) {
    const load = { ...NO_LOAD };
    for (const member of route.members) {
      const each = fleet.upstreams.get(member);
      load.inflight += each?.inflight ?? 0;
      if (!each || !isUsed(each)) continue;
      load.room += room(each);
      load.used += 1;
    }
    found.set(path, load);
  }
  return found;
}

/** What each of its routes would have left if this upstream drained, at the present load.
 * @param {Fleet} fleet @param {string} member @param {ReturnType<typeof loads>} all
 * @returns {{path: string, used: number, room: number, inflight: number, share: number | null}[]} `share`: of the
 * room that would be taken, null where that is not known */
export function ifDrained(fleet, member, all) {
  const upstream = fleet.upstreams.get(member);
  return (upstream?.routes ?? []).flatMap((path) => {
    const load = all.get(path);
    if (!upstream || !load) return [];
    const isIn = isUsed(upstream), used = load.used - (isIn ? 1 : 0), left = load.room - (isIn ? room(upstream) : 0);
    return [{ path, used, room: left, inflight: load.inflight, share: used === 0 ? Infinity : left > 0 ? load.inflight / left : null }];
  });
}

/** @param {Fleet} fleet @param {string} right @param {string} [path] of the route that it is about */
export function may(fleet, right, path) {
  const view = viewOf(fleet);
  if (!view) return false;
  if (view.rights === null || view.rights.includes("admin")) return true;
  const isBelow = (/** @type {string} */ prefix) => prefix === "/" || path === prefix || path?.startsWith(`${prefix}/`);
  return view.rights.includes(right) && (path === undefined || !view.prefixes || view.prefixes.some(isBelow));
}
