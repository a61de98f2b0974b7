// One route: how it is set, who serves it, who waits, and why its last request went where it went.

import { app, fetchOnce, routeUrl } from "../app.js";
import { deregister, register, setSetting, written } from "../actions.js";
import { h } from "../dom.js";
import { count, cut, name, natural, percent, plural, rate, seconds } from "../format.js";
import { badge, button, card, none, pairs, table } from "../parts.js";
import { NO_LOAD, loads, may } from "../state.js";
import { ring } from "./ring.js";
import { alerts, queuesByRoute } from "./overview.js";
import { upstreamColumns } from "./upstreams.js";

const SOURCES = /** @type {Record<string, string>} */ ({ hash: "set here", file: "file", defaults: "file, defaults", built_in: "built in" });

export function route() {
  const { fleet } = app, path = app.at.argument, found = fleet.routes.get(path);
  if (!found) return none(`There is no route ${cut(path)} (now).`);
  const all = loads(fleet), load = all.get(path) ?? NO_LOAD;
  const ofRoute = [...fleet.alerts].filter(([, each]) => each.route === path);
  const shares = fleet.rings.get(path)?.shares, mayRegister = may(fleet, "register", path);
  return [
    ofRoute.length ? alerts(ofRoute) : null,
    found.faults.map((each) => h("p", { class: "alert is-warning" }, cut(each, 300))),
    h("div", { class: "columns" },
      card("Now", pairs([
        ["Policy", found.policy], ["Requests", `${rate(found.rate)} per second`], ["Errors", `${rate(found.error_rate)} per second`],
        ["p50 and p99", `${seconds(found.p50)} and ${seconds(found.p99)}`],
          ["In flight", load.room ? `${count(load.inflight)} of ${plural(load.room, "slot")}` : count(load.inflight)],
        ["Upstreams in use", `${load.used} of ${found.members.length}${found.panic ? ", in panic: all are used" : ""}`],
        ["Names in DNS", found.names.length ? found.names.map((each) => name(each)) : "none"],
        ["Refusals", Object.keys(found.reasons).length ? Object.entries(found.reasons).map(([reason, each]) => `${reason} ${rate(each)}/s `) : "none"],
      ])),
      card("Queue", queue(path, found)), shares ? card("Ring", ring(shares)) : null, decision(path)),
    card("Upstreams", table("members", `Upstreams of ${cut(path)}`, [
      ...upstreamColumns(fleet, all, path),
      ...(mayRegister ? [{ name: "", cell: (/** @type {string} */ member) => button("Deregister", () => deregister(path, member), { class: "quiet" }) }]
        : []),
    ], found.members, (member) => member, (member) => [fleet.upstreams.get(member), load.inflight, load.room, mayRegister]),
    mayRegister ? button("Register", () => register(path), { icon: "plus" }) : null),
    held(found.members), settings(path, found, mayRegister),
  ];
}

/** @param {string} path @param {Route} found */
function queue(path, found) {
  const queues = queuesByRoute(app.fleet).get(path) ?? [], pool = app.fleet.pools.get(found.pool || path);
  const mode = pool ? h("p", { class: "dim" }, `Pool `, name(found.pool || path),
    `: ${pool.mode === "shared" ? "slots are counted in Redis" : `${pool.mode} (${cut(pool.error || "Redis does not decide", 120)})`}`) : null;
  if (!queues.length) return [none(found.settings.when_full === "queue" ? "Nobody waits." : "Its requests do not queue."), mode];
  return [mode, table("queue", "Queue by class", [
    { name: "Class", by: (each) => each.priority, cell: (each) => name(each.priority || "all") },
    { name: "Waiting", right: true, by: (each) => each.depth, cell: (each) => count(each.depth) },
    { name: "Oldest", right: true, by: (each) => each.oldest, cell: (each) => seconds(each.oldest) },
    { name: "New ones wait", right: true, by: (each) => each.eta, cell: (each) => seconds(each.eta) },
  ], queues, (each) => each.priority)];
}

/** Why the last request went where it went, as the API explains it. @param {string} path */
function decision(path) {
  const { data, error } = fetchOnce(`route ${path}`, routeUrl(path));
  const again = button("Again", () => fetchOnce(`route ${path}`, routeUrl(path), true), { class: "quiet" });
  const made = data?.decision;
  if (!made) return card("Last decision", none(error ?? (data ? "None is known." : "…")), again);
  const by = { redis: "Redis", here: "this instance, in place of Redis", policy: "the policy, in each instance" };
  return card("Last decision", [pairs([
    ["Decided by", by[/** @type {"redis"} */ (made.decided_by)] ?? made.decided_by], ["Outcome", made.outcome ?? "–"],
    ["Went to", made.chosen ? name(made.chosen) : made.reason ?? "–"], ["Waited", seconds(made.waited)],
  ]), h("ol", { class: "verdicts" }, made.members.slice(0, 12).map((/** @type {any} */ each) =>
    h("li", { key: each.member }, name(each.member, 32), h("span", { class: "dim" },
      ` ${each.verdict}${each.score === null ? "" : `, ${each.score} in flight`}`)))),
    made.members.length > 12 ? h("p", { class: "dim" }, `and ${made.members.length - 12} more`) : null], again);
}

/** Who holds slots of whom. @param {string[]} members */
function held(members) {
  const held = new Map(members.map((member) => [member, new Map(Object.entries(app.fleet.upstreams.get(member)?.held ?? {}))]));
  const rows = [...held].filter(([, each]) => [...each.values()].some((slots) => slots > 0));
  const names = [...new Set(rows.flatMap(([, each]) => [...each.keys()]))].sort(natural);
  if (!rows.length) return null;
  return card("Who holds slots of whom", table("held", "Slots by holder", [
    { name: "Upstream", by: ([member]) => member, cell: ([member]) => name(member) },
    ...names.map((holder) => ({ name: cut(holder, 24), right: true, down: true,
      by: (/** @type {typeof rows[0]} */ [, each]) => each.get(holder) ?? 0,
      cell: (/** @type {typeof rows[0]} */ [, each]) => each.get(holder) || "" })),
  ], rows, ([member]) => member));
}

/** @param {string} path @param {Route} found @param {boolean} mayChange */
function settings(path, found, mayChange) {
  const names = Object.keys(found.settings).sort();
  const rank = { hash: 0, file: 1, defaults: 2, built_in: 3 }, sources = new Map(Object.entries(found.sources));
  const source = (/** @type {string} */ each) => sources.get(each) ?? "";
  return card("Settings", table("settings", `Settings of ${cut(path)}`, [
    { name: "Comes from", by: (/** @type {string} */ each) => rank[/** @type {"hash"} */ (source(each))] ?? 4,
      cell: (each) => badge(SOURCES[source(each)] ?? source(each), source(each) === "built_in" ? "plain" : "set") },
    { name: "Setting", by: (each) => each, cell: (each) => h("code", null, cut(each)) },
    { name: "Value", by: (each) => written(found.settings[each]), cell: (each) => name(written(found.settings[each])) },
    ...(mayChange ? [{ name: "", cell: (/** @type {string} */ each) => button("Change", () => setSetting(path, each),
      { class: "quiet", "aria-label": `Change ${cut(each)}` }) }] : []),
  ], names, (each) => each, (each) => [found.settings[each], source(each), mayChange]),
  mayChange ? button("Set another", () => setSetting(path)) : null);
}

