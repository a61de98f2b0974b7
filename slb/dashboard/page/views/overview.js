// The page one leaves open on the wall: what needs attention, how much is going on, and every slot.

import { app, link, now } from "../app.js";
import { register } from "../actions.js";
import { chart, spark } from "../chart.js";
import { h, icon } from "../dom.js";
import { count, cut, percent, plural, rate, seconds, span } from "../format.js";
import { known } from "../history.js";
import { badge, button, card, cell, filled, filterField, none, passes, routeLink, tile } from "../parts.js";
import { fleet, load, may, totals } from "../state.js";

const LEVELS = ["error", "warning", "info"];

export function overview() {
  const hour = known(), sum = totals();
  const routes = [...fleet.routes].filter(([path, each]) => passes("routes", `${path} ${each.policy}`)).sort(([a], [b]) => (a < b ? -1 : 1));
  const past = (/** @type {string} */ label, /** @type {string} */ figure, /** @type {Figures} */ values, below = "", isBad = false) =>
    tile(label, figure, isBad, h("span", { class: "dim" }, below), spark(hour.time, values));
  const plotted = (/** @type {string} */ title, /** @type {Line["show"]} */ show, /** @type {[string, string, Figures][]} */ lines) =>
    card(title, chart(title, hour.time, lines.map(([label, colour, values]) => ({ label, colour, values, show })), show));
  return [
    alerts(),
    h("div", { class: "tiles" },
      past("Requests per second", rate(sum.rate), hour.rate),
      past("Errors per second", rate(sum.errors), hour.errors,
        sum.errors > 0 ? `${percent(sum.errors / Math.max(sum.rate, sum.errors))} of all` : "none", sum.errors > 0),
      past("In flight", count(sum.inflight), hour.inflight, sum.slots ? `${percent(sum.used / sum.slots)} of ${plural(sum.slots, "slot")}` : ""),
      past("Latency, median", seconds(sum.p50), hour.p50),
      past("Latency, 99th percentile", seconds(sum.p99), hour.p99, "at the slowest instance"),
      past("Waiting", count(sum.waiting), hour.waiting, sum.jobs ? `and ${plural(sum.jobs, "job")}` : "")),
    h("div", { class: "charts" },
      plotted("Requests and errors per second", rate, [["requests", "--accent", hour.rate], ["errors", "--bad", hour.errors]]),
      plotted("Latency", seconds, [["p50", "--accent", hour.p50], ["p99", "--warn", hour.p99]])),
    h("div", { class: "section-head" }, h("h2", null, "Routes"), filterField("routes", "Filter routes"),
      may("register") ? button("Register", () => register(), { icon: "plus" }) : null),
    routes.length ? h("div", { class: "routes" }, routes.map(([path, each]) => routeCard(path, each)))
      : none(app.filters.routes ? "No route passes the filter."
        : "There are no routes yet. One begins with its first upstream: slb register, or Register above."),
  ];
}

/** @param {string} [path] of the one route that is meant */
export function alerts(path) {
  const found = [...fleet.alerts].filter(([id, each]) => id !== "alone" && (!path || each.route === path))
    .sort(([, a], [, b]) => LEVELS.indexOf(a.level) - LEVELS.indexOf(b.level) || a.since - b.since);
  if (!found.length) return path ? null : h("p", { key: "calm", class: "calm" }, icon("up"), "Nothing needs attention.");
  return h("ul", { key: "alerts", class: "alerts", "aria-label": "Alerts" }, found.map(([id, each]) =>
    h("li", { key: id, class: `alert is-${each.level}` }, icon(each.level === "info" ? "info" : each.level === "error" ? "cross" : "warn", each.level),
      h("bdi", { class: "alert-text" }, cut(each.text, 400), each.do ? h("code", { class: "do" }, cut(each.do, 160)) : null),
      each.route ? h("a", { href: link("route", each.route) }, "route") : null,
      each.upstream ? h("a", { href: link("upstreams", each.upstream) }, "upstream") : null,
      each.instance ? h("a", { href: link("instances") }, "instance") : null,
      /^(dead|jobs?):/.test(id) ? h("a", { href: link("jobs") }, "jobs") : null,
      h("span", { class: "dim" }, `for ${span(now() - each.since)}`))));
}

/** @param {string} path @param {Route} route */
function routeCard(path, route) {
  const { inflight, room, queues } = load(path), waiting = queues.filter((each) => each.depth > 0);
  const upstreams = route.members.map((member) => fleet.upstreams.get(member));
  const figure = (/** @type {string} */ value, /** @type {string} */ unit) => h("span", { class: "figure" }, h("b", null, value), unit);
  return h("section", { key: path, class: "card route", memo: [route, inflight, room, ...waiting, ...upstreams] }, () => [
    h("div", { class: "card-head" },
      h("h3", null, routeLink(path)), badge(route.policy),
      route.panic ? badge("panic", "bad", "too few upstreams are available, so all are used") : null,
      route.faults.length ? badge(plural(route.faults.length, "unusable setting"), "warn") : null,
      waiting.map((each) => h("span", { key: each.priority, class: "badge is-queue" }, icon("queue"), h("span", null,
        plural(each.depth, "request"), " waiting", each.priority ? [" as ", h("bdi", null, cut(each.priority, 20))] : null,
        each.oldest === null ? null : `, ${seconds(each.oldest)}`))),
      h("span", { class: "figures" }, figure(rate(route.rate), "/s"),
        route.error_rate ? h("span", { class: "bad" }, figure(rate(route.error_rate), " errors/s")) : null,
        figure(seconds(route.p50), " p50"), figure(seconds(route.p99), " p99"),
        filled(inflight, room))),
    route.members.length ? h("div", { class: route.members.length > 40 ? "cells is-many" : "cells", role: "group",
      "aria-label": "Upstreams and their slots" },
      route.members.map((member, i) => cell(member, upstreams[i])))
      : none("It has no upstreams.")]);
}
