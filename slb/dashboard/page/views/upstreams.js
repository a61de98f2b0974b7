// All upstreams: who is slow, who is full, and what would be left without one.

import { app } from "../app.js";
import { drain, undrain, weigh } from "../actions.js";
import { h } from "../dom.js";
import { cut, name, percent, plural, rate, seconds } from "../format.js";
import { button, card, filled, filterField, health, none, passes, routeLink, table } from "../parts.js";
import { ifDrained, loads, may, room } from "../state.js";
import { holders } from "./overview.js";

export function upstreams() {
  const { fleet } = app, all = loads(fleet);
  if (app.at.argument && app.fetched.filtered !== app.at.argument) [app.fetched.filtered, app.filters.upstreams] = [app.at.argument, app.at.argument];
  const of = upstreamIn(fleet), members = [...fleet.upstreams.keys()].filter((member) => {
    const each = of(member);
    return passes("upstreams", [member, each.zone, each.node, each.health, each.drain ? "draining" : "", ...each.routes].join(" "));
  });
  const load = (/** @type {string} */ member) => of(member).routes.flatMap((path) => [all.get(path)?.inflight, all.get(path)?.room]);
  const [member, ...columns] = upstreamColumns(fleet, all);
  return card("Upstreams", [
    members.length ? table("upstreams", "Upstreams", [member,
      { name: "Routes", by: (member) => of(member).routes.join(),
        cell: (member) => of(member).routes.slice(0, 3).map((path, i) => [i ? ", " : "", routeLink(path)]) },
      ...columns], members, (member) => member, (member) => [of(member), may(fleet, "admin"), ...load(member)])
      : none(app.filters.upstreams ? "No upstream passes the filter." : "There are no upstreams yet."),
  ], [h("span", { class: "dim" }, plural(members.length, "upstream")), filterField("upstreams", "Filter: name, zone, node, state, route")]);
}

/** @param {Fleet} fleet @param {ReturnType<typeof loads>} all @param {string} [path] of the one route that is meant
 * @returns {import("../parts.js").Column<string>[]} */
export function upstreamColumns(fleet, all, path) {
  const of = upstreamIn(fleet);
  /** Of the routes it is in, the one that would be fullest. @param {string} member */
  const worst = (member) => {
    const left = ifDrained(fleet, member, all).filter((each) => !path || each.path === path);
    return left.length ? Math.max(...left.map((each) => each.share ?? -1)) : null;
  };
  return [
    { name: "Upstream", by: (member) => member, cell: (member) => name(member, 40) },
    { name: "State", by: (member) => of(member)?.health, cell: (member) => [health(of(member)),
      of(member)?.why ? h("small", { class: "why" }, cut(of(member).why, 80)) : null,
      of(member)?.ejected_by.length ? h("small", { class: "why" }, "by ", of(member).ejected_by.slice(0, 3).map((each) => [name(each, 24), " "])) : null] },
    { name: "Slots", by: (member) => (of(member) ? of(member).inflight / (room(of(member)) || 1) : 0), down: true,
      cell: (member) => of(member) ? filled(of(member).inflight, room(of(member))) : "–" },
    { name: "Held by", cell: (member) => holders(of(member)?.held ?? {}) },
    { name: "Req/s", right: true, down: true, by: (member) => of(member)?.rate, cell: (member) => rate(of(member)?.rate) },
    { name: "Errors/s", right: true, down: true, by: (member) => of(member)?.error_rate,
      cell: (member) => h("span", { class: of(member)?.error_rate ? "bad" : "dim" }, rate(of(member)?.error_rate)) },
    { name: "Latency", right: true, down: true, by: (member) => of(member)?.latency, cell: (member) => seconds(of(member)?.latency) },
    { name: "Weight", right: true, down: true, by: (member) => of(member)?.weight, cell: (member) => of(member)?.weight ?? "–" },
    { name: "Zone, node", by: (member) => `${of(member)?.zone} ${of(member)?.node}`,
      cell: (member) => [of(member)?.zone, of(member)?.node].filter(Boolean).map((each, i) => [i ? " " : "", name(/** @type {string} */ (each), 24)]) },
    { name: "If drained", right: true, down: true, by: worst, cell: (member) => without(worst(member)) },
    ...(may(fleet, "admin") ? [{ name: "", cell: (/** @type {string} */ member) => of(member) ? doing(member, of(member)) : null }] : []),
  ];
}

/** @param {Fleet} fleet @returns {(member: string) => Upstream} */
function upstreamIn({ upstreams }) {
  return (member) => /** @type {Upstream} */ (upstreams.get(member));
}

/** @param {number | null} share of what would be left that is taken now */
function without(share) {
  if (share === null || share < 0) return "–"; // there is no cap to compare with
  if (share === Infinity) return h("span", { class: "bad" }, "none is left");
  return h("span", { class: share > 1 ? "bad" : share > 0.85 ? "warn" : "dim" }, `${percent(share)} full`);
}

/** @param {string} member @param {Upstream} upstream */
function doing(member, upstream) {
  const shown = cut(member);
  return h("span", { class: "nowrap" },
    upstream.drain ? button("End drain", () => undrain(member), { class: "quiet", "aria-label": `End the drain of ${shown}` })
      : button("Drain", () => drain(member), { class: "quiet", "aria-label": `Drain ${shown}` }),
    button("Weight", () => weigh(member, upstream.weight), { class: "quiet", "aria-label": `Set the weight of ${shown}` }));
}
