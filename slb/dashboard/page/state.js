// What is known of the fleet, kept by events, and what follows from it.

import { natural } from "./format.js";

const SECTIONS = /** @type {const} */ (["view", "instances", "routes", "upstreams", "queues", "pools", "jobs", "quota", "rings", "alerts", "changes"]);
const AVAILABLE = new Set(["up", "unchecked", "busy", "failing", "stuck"]);
const SORTED = new Set(["routes", "upstreams"]); // by their keys, as people count
const LEVELS = ["info", "warning", "error"], KINDS = /** @type {const} */ (["route", "upstream", "instance"]);
/** How bad each is; what is not here is well. */
const GRAVE = new Map([["busy", 1], ["failing", 2], ["stuck", 3], ["ejected", 3], ["down", 4]]);

export const fleet = /** @type {Fleet} */ (/** @type {unknown} */ (Object.fromEntries(SECTIONS.map((each) => [each, new Map()]))));

/** @type {Map<string, Load> | null} computed once for each event */
let loads = null;
/** @type {Map<string, Map<string | undefined, [string, Alert][]>> | null} the same, by what each is about */
let told = null;
/** The place of each upstream in the order of all. @type {Map<string, number>} */
let places = new Map();

/** In place, so that an event costs what it changes. @param {FleetChange} change @param {boolean} isAll that there is */
export function apply(change, isAll) {
  loads = told = null;
  for (const section of SECTIONS) {
    const entries = /** @type {Map<string, any>} */ (fleet[section]);
    let isNew = isAll;
    if (isAll) entries.clear();
    for (const [key, value] of Object.entries(change[section] ?? {})) {
      if (value === null) entries.delete(key);
      else {
        isNew ||= !entries.has(key);
        entries.set(key, value);
      }
    }
    if (isNew && SORTED.has(section)) sort(entries);
  }
}

function sort(/** @type {Map<string, any>} */ entries) {
  const sorted = [...entries].sort(([a], [b]) => natural(a, b));
  entries.clear();
  for (const [key, each] of sorted) entries.set(key, each);
  if (entries === fleet.upstreams) places = new Map(sorted.map(([key], place) => [key, place]));
}

export function condition(/** @type {Upstream | undefined} */ upstream) {
  return !upstream ? "unknown" : upstream.drain && upstream.health !== "down" ? "draining" : upstream.health;
}

/** Ids and alerts, the worst first, or those about one `key`. @param {typeof KINDS[number]} [kind] @param {string} [key] */
export function alertsOf(kind, key) {
  const sorted = (/** @type {Iterable<[string, Alert]>} */ all) => [...all].sort(([, a], [, b]) => gravity(b) - gravity(a) || a.since - b.since);
  if (!kind) return sorted(fleet.alerts);
  told ??= new Map(KINDS.map((each) => [each, Map.groupBy(sorted(fleet.alerts), ([, alert]) => alert[each])]));
  return told.get(kind)?.get(key) ?? [];
}

/** 0: it is a hint, or there is none. */
export function gravity(/** @type {Alert | undefined} */ alert) {
  return alert ? LEVELS.indexOf(alert.level) : 0;
}

/** How bad it is with an upstream (0: it is well), why, and since when. One that serves may be named by an alert.
 * @param {string} member @returns {Trouble} */
export function trouble(member) {
  const upstream = fleet.upstreams.get(member), is = condition(upstream), [, accused] = alertsOf("upstream", member)[0] ?? [];
  if (!upstream || is === "draining") return { grave: 0, why: upstream?.why ?? "", since: null };
  const grave = GRAVE.get(is) ?? (gravity(accused) && 2);
  return { grave, why: upstream.why || (grave && accused?.text) || "", since: grave ? upstream.since ?? accused?.since ?? null : null };
}

/** The sick ones first, then by address. @param {string[]} members */
export function inOrder(members) {
  const keyed = members.map((each) => /** @type {const} */ ([trouble(each).grave, places.get(each) ?? Infinity, each]));
  return keyed.sort(([a, x], [b, y]) => b - a || (x < y ? -1 : 1)).map(([, , each]) => each);
}

/** How bad it is with a route: by its alerts, then by its upstreams. @param {string} path @param {Route} route */
export function badness(path, route) {
  return 5 * gravity(alertsOf("route", path)[0]?.[1]) + Math.max(0, ...route.members.map((each) => trouble(each).grave));
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
