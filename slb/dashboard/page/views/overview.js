// The page one leaves open on the wall: what needs attention, how much is going on, and every slot.

import { app, link, now } from "../app.js";
import { chart, spark } from "../chart.js";
import { h, icon } from "../dom.js";
import { count, cut, name, percent, plural, rate, seconds, span } from "../format.js";
import { known } from "../history.js";
import { badge, button, cell, filled, filterField, none, passes, routeLink } from "../parts.js";
import { NO_LOAD, loads, may, totals } from "../state.js";
import { register } from "../actions.js";

const LEVELS = ["error", "warning", "info"];

export function overview() {
  const { fleet } = app, hour = known(), sum = totals(fleet), all = loads(fleet), waiting = queuesByRoute(fleet);
  const routes = [...fleet.routes].filter(([path, each]) => passes("routes", `${path} ${each.policy}`)).sort(([a], [b]) => (a < b ? -1 : 1));
  return [
    alerts([...fleet.alerts]),
    h("div", { class: "tiles" },
      tile(hour.time, "Requests per second", rate(sum.rate), hour.rate),
      tile(hour.time, "Errors per second", rate(sum.errors), hour.errors,
        sum.errors > 0 ? `${percent(sum.errors / Math.max(sum.rate, sum.errors))} of all` : "none", sum.errors > 0),
      tile(hour.time, "In flight", count(sum.inflight), hour.inflight, sum.slots ? `${percent(sum.used / sum.slots)} of ${plural(sum.slots, "slot")}` : ""),
      tile(hour.time, "Latency, median", seconds(sum.p50), hour.p50),
      tile(hour.time, "Latency, 99th percentile", seconds(sum.p99), hour.p99, "at the slowest instance"),
      tile(hour.time, "Waiting", count(sum.waiting), hour.waiting, sum.jobs ? `and ${plural(sum.jobs, "job")}` : "")),
    h("div", { class: "charts" },
      h("section", { class: "card" }, h("h2", null, "Requests and errors per second"), chart("Requests and errors per second", hour.time, [
        { label: "requests", colour: "--accent", values: hour.rate, show: rate },
          { label: "errors", colour: "--bad", values: hour.errors, show: rate }], rate)),
      h("section", { class: "card" }, h("h2", null, "Latency"), chart("Latency", hour.time, [
        { label: "p50", colour: "--accent", values: hour.p50, show: seconds }, { label: "p99", colour: "--warn", values: hour.p99, show: seconds }],
          seconds))),
    h("div", { class: "section-head" }, h("h2", null, "Routes"), filterField("routes", "Filter routes"),
      may(fleet, "register") ? button("Register", () => register(), { icon: "plus" }) : null),
    routes.length ? h("div", { class: "routes" }, routes.map(([path, each]) => routeCard(path, each, waiting.get(path) ?? [], all.get(path))))
      : none(app.filters.routes ? "No route passes the filter."
        : "There are no routes yet. One begins with its first upstream: slb register, or Register above."),
  ];
}

/** @param {[string, Alert][]} all */
export function alerts(all) {
  const found = all.filter(([id]) => id !== "alone").sort(([, a], [, b]) => LEVELS.indexOf(a.level) - LEVELS.indexOf(b.level)
    || a.since - b.since);
  if (!found.length) return h("p", { key: "calm", class: "calm" }, icon("up"), "Nothing needs attention.");
  return h("ul", { key: "alerts", class: "alerts", "aria-label": "Alerts" }, found.map(([id, each]) =>
    h("li", { key: id, class: `alert is-${each.level}` }, icon(each.level === "info" ? "info" : each.level === "error" ? "cross" : "warn", each.level),
      h("bdi", { class: "alert-text" }, cut(each.text, 400)),
      each.route ? h("a", { href: link("route", each.route) }, "route") : null,
      each.upstream ? h("a", { href: link("upstreams", each.upstream) }, "upstream") : null,
      each.instance ? h("a", { href: link("instances") }, "instance") : null,
      /^(dead|jobs?):/.test(id) ? h("a", { href: link("jobs") }, "jobs") : null,
      h("span", { class: "dim" }, `for ${span(now() - each.since)}`))));
}

/** @param {(number | null)[]} time @param {string} label @param {string} figure @param {(number | null)[]} values
 * @param {string} [below] @param {boolean} [isBad] */
function tile(time, label, figure, values, below = "", isBad = false) {
  return h("div", { class: isBad ? "tile is-bad" : "tile" }, h("span", { class: "label" }, label), h("strong", null, figure),
    h("span", { class: "dim" }, below), spark(time, values));
}

/** @param {Fleet} fleet @returns {Map<string, Queue[]>} */
export function queuesByRoute(fleet) {
  const found = new Map();
  for (const each of fleet.queues.values()) found.set(each.route, [...(found.get(each.route) ?? []), each]);
  return found;
}

/** @param {string} path @param {Route} route @param {Queue[]} waiting @param {Load} [load] */
function routeCard(path, route, waiting, load = NO_LOAD) {
  const queues = waiting.filter((each) => each.depth > 0), upstreams = route.members.map((member) => app.fleet.upstreams.get(member));
  return h("section", { key: path, class: "card route", memo: [route, load.inflight, load.room, ...queues, ...upstreams] }, () => [
    h("div", { class: "card-head" },
      h("h3", null, routeLink(path)), badge(route.policy),
      route.panic ? badge("panic", "bad", "too few upstreams are available, so all are used") : null,
      route.faults.length ? badge(plural(route.faults.length, "unusable setting"), "warn") : null,
      queues.map((each) => h("span", { key: each.priority, class: "badge is-queue" }, icon("queue"), h("span", null,
        plural(each.depth, "request"), " waiting", each.priority ? [" as ", h("bdi", null, cut(each.priority, 20))] : null,
        each.oldest === null ? null : `, ${seconds(each.oldest)}`))),
      h("span", { class: "figures" }, figure(rate(route.rate), "/s"),
        route.error_rate ? h("span", { class: "bad" }, figure(rate(route.error_rate), " errors/s")) : null,
        figure(seconds(route.p50), " p50"), figure(seconds(route.p99), " p99"),
        filled(load.inflight, load.room))),
    route.members.length ? h("div", { class: route.members.length > 40 ? "cells is-many" : "cells", role: "group",
      "aria-label": "Upstreams and their slots" },
      route.members.map((member, i) => cell(member, upstreams[i])))
      : none("It has no upstreams.")]);
}

/** @param {string} value @param {string} unit */
function figure(value, unit) {
  return h("span", { class: "figure" }, h("b", null, value), unit);
}

/** Names of what holds slots, with how many. @param {Record<string, number>} held */
export function holders(held) {
  return Object.entries(held).filter(([, each]) => each > 0).sort(([, a], [, b]) => b - a).map(([holder, each]) => h("span",
    { key: holder, class: "held" }, name(holder, 24), ` ${each}`));
}
