// One route: how it is set, who serves it, who waits, and why its last request went where it went.

import { app, fetchOnce, routeUrl } from "../app.js";
import { register, setSetting, written } from "../actions.js";
import { h } from "../dom.js";
import { count, cut, name, natural, percent, plural, rate, seconds } from "../format.js";
import { badge, button, card, figures, names, none, pairs, quiet, table } from "../parts.js";
import { fleet, load, may } from "../state.js";
import { alerts } from "./overview.js";
import { upstreamTable } from "./upstreams.js";

/** The nearest first. @type {Record<string, string>} */
const SOURCES = { hash: "set here", file: "file", defaults: "file, defaults", built_in: "built in" };
const DECIDED = /** @type {Record<string, string>} */ ({ redis: "Redis", here: "this instance, in place of Redis", policy: "the policy, in each instance" });
const MIDDLE = 64, RADIUS = 54, SHOWN = 12, COLOURS = 8; // of a ring, and how many of a long list

export function route() {
  const path = app.at.argument, found = fleet.routes.get(path);
  if (!found) return none(`There is no route ${cut(path)} (now).`);
  const now = load(path), mayRegister = may("register", path), shares = fleet.rings.get(path)?.shares;
  const rows = found.members.map((member) => /** @type {import("./upstreams.js").Row} */ ([member, fleet.upstreams.get(member)]));
  return [
    alerts(path),
    found.faults.map((each) => h("p", { class: "alert is-warning" }, cut(each, 300))),
    h("div", { class: "columns" },
      card("Now", pairs([
        ["Policy", found.policy], ["Requests", `${rate(found.rate)} per second`], ["Errors", `${rate(found.error_rate)} per second`],
        ["p50 and p99", `${seconds(found.p50)} and ${seconds(found.p99)}`],
        ["In flight", now.room ? `${count(now.inflight)} of ${plural(now.room, "slot")}` : count(now.inflight)],
        ["Upstreams in use", `${now.used} of ${found.members.length}${found.panic ? ", in panic: all are used" : ""}`],
        ["Names in DNS", found.names.length ? found.names.map((each) => name(each)) : "none"],
        ["Refusals", Object.keys(found.reasons).length ? Object.entries(found.reasons).map(([reason, each]) => `${reason} ${rate(each)}/s `) : "none"],
      ])),
      card("Queue", queue(path, found)), shares ? card("Ring", ring(shares)) : null, decision(path)),
    card("Upstreams", upstreamTable("members", `Upstreams of ${cut(path)}`, rows, path),
      mayRegister ? button("Register", () => register(path), { icon: "plus" }) : null),
    held(rows), settings(path, found, mayRegister),
  ];
}

function queue(/** @type {string} */ path, /** @type {Route} */ found) {
  const { queues } = load(path), pool = fleet.pools.get(found.pool || path);
  const mode = pool ? h("p", { class: "dim" }, `Pool `, name(found.pool || path),
    `: ${pool.mode === "shared" ? "slots are counted in Redis" : `${pool.mode} (${cut(pool.error || "Redis does not decide", 120)})`}`) : null;
  if (!queues.length) return [none(found.settings.when_full === "queue" ? "Nobody waits." : "Its requests do not queue."), mode];
  return [mode, table("queue", "Queue by class", queues, (each) => each.priority, [
    names("Class", (each) => each.priority || "all"), figures("Waiting", (each) => each.depth, count),
    figures("Oldest", (each) => each.oldest, seconds), figures("New ones wait", (each) => each.eta, seconds),
  ])];
}

/** How many of the keys each upstream has, as a circle. @param {[string, number][]} shares */
function ring(shares) {
  const sorted = [...shares].sort(([, a], [, b]) => b - a);
  let from = 0;
  const arcs = sorted.map(([member, share], i) => {
    const arc = h("circle", { key: member, class: `arc arc-${i % COLOURS}`, cx: MIDDLE, cy: MIDDLE, r: RADIUS, pathLength: 1,
      transform: `rotate(-90 ${MIDDLE} ${MIDDLE})`, "stroke-dasharray": `${share} 1`, "stroke-dashoffset": -from },
    h("title", null, `${cut(member)}: ${percent(share)}`));
    from += share;
    return arc;
  });
  return h("div", { class: "ring" },
    h("svg", { viewBox: `0 0 ${2 * MIDDLE} ${2 * MIDDLE}`, role: "img", "aria-label": `Key shares of ${shares.length} upstreams` }, arcs,
      h("text", { x: MIDDLE, y: MIDDLE + 5, "text-anchor": "middle" }, String(shares.length))),
    h("ol", null, sorted.slice(0, SHOWN).map(([member, share], i) => h("li", { key: member }, h("span", { class: `dot arc-${i % COLOURS}` }),
      name(member, 28), h("b", null, percent(share)))), more(sorted.length)));
}

function more(/** @type {number} */ length) {
  return length > SHOWN ? h("li", { class: "dim" }, `and ${length - SHOWN} more`) : null;
}

/** Why the last request went where it went, as the API explains it. @param {string} path */
function decision(path) {
  const { data, error } = fetchOnce(`route ${path}`, routeUrl(path)), made = data?.decision;
  return card("Last decision", made ? [pairs([
    ["Decided by", DECIDED[made.decided_by] ?? made.decided_by], ["Outcome", made.outcome ?? "–"],
    ["Went to", made.chosen ? name(made.chosen) : made.reason ?? "–"], ["Waited", seconds(made.waited)],
  ]), h("ol", { class: "verdicts" }, made.members.slice(0, SHOWN).map((/** @type {any} */ each) => h("li", { key: each.member },
    name(each.member, 32), h("span", { class: "dim" }, ` ${each.verdict}${each.score === null ? "" : `, ${each.score} in flight`}`))),
  more(made.members.length))] : none(error ?? (data ? "None is known." : "…")),
  quiet("Again", () => fetchOnce(`route ${path}`, routeUrl(path), true)));
}

/** Who holds slots of whom. @param {import("./upstreams.js").Row[]} members */
function held(members) {
  const rows = members.map(([member, each]) => /** @type {const} */ ([member, new Map(Object.entries(each?.held ?? {}))]))
    .filter(([, each]) => [...each.values()].some((slots) => slots > 0));
  const holders = [...new Set(rows.flatMap(([, each]) => [...each.keys()]))].sort(natural);
  if (!rows.length) return null;
  return card("Who holds slots of whom", table("held", "Slots by holder", rows, ([member]) => member, [
    names("Upstream", ([member]) => member),
    ...holders.map((holder) => figures(cut(holder, 24), (/** @type {typeof rows[0]} */ [, each]) => each.get(holder), (slots) => slots || "")),
  ]));
}

function settings(/** @type {string} */ path, /** @type {Route} */ found, /** @type {boolean} */ mayChange) {
  const sources = new Map(Object.entries(found.sources)), source = (/** @type {string} */ each) => sources.get(each) ?? "";
  return card("Settings", table("settings", `Settings of ${cut(path)}`, Object.keys(found.settings).sort(), (each) => each, [
    { name: "Comes from", by: (each) => Object.keys(SOURCES).indexOf(source(each)),
      cell: (each) => badge(SOURCES[source(each)] ?? source(each), source(each) === "built_in" ? "plain" : "set") },
    { name: "Setting", by: (each) => each, cell: (each) => h("code", null, cut(each)) },
    names("Value", (each) => written(found.settings[each])),
    mayChange && { name: "", cell: (each) => quiet("Change", () => setSetting(path, each), `Change ${cut(each)}`) },
  ], (each) => [found.settings[each], source(each)]),
  mayChange ? button("Set another", () => setSetting(path)) : null);
}
