// All upstreams: who is slow, who is full, and what would be left without one.

import { app } from "../app.js";
import { deregister, drain, weigh } from "../actions.js";
import { h } from "../dom.js";
import { cut, name, percent, plural, rate, seconds } from "../format.js";
import { alarming, card, figures, filled, filterField, health, names, none, passes, quiet, routeLink, table } from "../parts.js";
import { fleet, ifDrained, load, may, room } from "../state.js";

/** @typedef {[string, Upstream | undefined]} Row */

export function upstreams() {
  if (app.at.argument && app.fetched.filtered !== app.at.argument) app.fetched.filtered = app.filters.upstreams = app.at.argument;
  const rows = [...fleet.upstreams].filter(([member, each]) =>
    passes("upstreams", [member, each.zone, each.node, each.health, each.drain ? "draining" : "", ...each.routes].join(" ")));
  return card("Upstreams", rows.length ? upstreamTable("upstreams", "Upstreams", rows)
    : none(app.filters.upstreams ? "No upstream passes the filter." : "There are no upstreams yet."),
  [h("span", { class: "dim" }, plural(rows.length, "upstream")), filterField("upstreams", "Filter: name, zone, node, state, route")]);
}

/** @param {string} id @param {string} label @param {Row[]} rows @param {string} [path] of the one route that is meant */
export function upstreamTable(id, label, rows, path) {
  const isAdmin = may("admin"), mayDeregister = path !== undefined && may("register", path);
  /** Of the routes it is in, the one that would be fullest; -1: there is no cap to compare with. @param {Row} row */
  const worst = ([, each]) => Math.max(-1, ...ifDrained(each).filter((left) => !path || left.path === path).map(({ share }) => share ?? -1));
  return table(id, label, rows, ([member]) => member, [
    names("Upstream", ([member]) => member, 40),
    !path && { name: "Routes", by: ([, each]) => each?.routes.join(),
      cell: ([, each]) => each?.routes.slice(0, 3).map((path, i) => [i ? ", " : "", routeLink(path)]) },
    { name: "State", by: ([, each]) => each?.health, cell: ([, each]) => [health(each),
      each?.why ? h("small", { class: "why" }, cut(each.why, 80)) : null,
      each?.ejected_by.length ? h("small", { class: "why" }, "by ", each.ejected_by.slice(0, 3).map((by) => [name(by, 24), " "])) : null] },
    { name: "Slots", by: ([, each]) => (each ? each.inflight / (room(each) || 1) : 0), down: true,
      cell: ([, each]) => (each ? filled(each.inflight, room(each)) : "–") },
    { name: "Held by", cell: ([, each]) => Object.entries(each?.held ?? {}).filter(([, slots]) => slots > 0).sort(([, a], [, b]) => b - a)
      .map(([holder, slots]) => h("span", { key: holder, class: "held" }, name(holder, 24), ` ${slots}`)) },
    figures("Req/s", ([, each]) => each?.rate, rate),
    figures("Errors/s", ([, each]) => each?.error_rate, alarming),
    figures("Latency", ([, each]) => each?.latency, seconds), figures("First byte", ([, each]) => each?.first_byte, seconds),
    figures("Weight", ([, each]) => each?.weight, (weight) => weight ?? "–"),
    { name: "Zone, node", by: ([, each]) => `${each?.zone} ${each?.node}`,
      cell: ([, each]) => [each?.zone, each?.node].map((place) => (place ? [name(place, 24), " "] : null)) },
    figures("If drained", worst, (share) => (share == null || share < 0 ? "–" : h("span", { class: share > 1 ? "bad" : share > 0.85 ? "warn" : "dim" },
      share === Infinity ? "none is left" : `${percent(share)} full`))),
    (isAdmin || mayDeregister) && { name: "", cell: ([member, each]) => h("span", { class: "nowrap" },
      isAdmin && each ? [
        quiet(each.drain ? "End drain" : "Drain", () => drain(member, !each.drain), `${each.drain ? "End the drain of" : "Drain"} ${cut(member)}`),
        quiet("Weight", () => weigh(member, each.weight), `Set the weight of ${cut(member)}`),
      ] : null,
      mayDeregister ? quiet("Deregister", () => deregister(path, member)) : null) },
  ], ([, each]) => [each, isAdmin, mayDeregister, ...(each?.routes ?? []).map(load).flatMap(({ inflight, room }) => [inflight, room])]);
}
