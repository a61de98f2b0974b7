// The page one leaves open on the wall: what needs attention, how much is going on, and every slot.

import { app, link, ticked } from "../app.js";
import { drainButton, register } from "../actions.js";
import { chart, spark } from "../chart.js";
import { h, icon } from "../dom.js";
import { count, cut, percent, plural, rate, seconds } from "../format.js";
import { known } from "../history.js";
import { badge, button, card, cell, filled, filterField, health, none, passes, reason, routeLink, since, tile, who } from "../parts.js";
import { alertsOf, badness, fleet, gravity, inOrder, load, may, totals, trouble } from "../state.js";

const MOST_NAMED = 3; // upstreams in one alert, and of one route with their reasons

export function overview() {
  const hour = known(), sum = totals();
  const routes = [...fleet.routes].filter(([path, each]) => passes("routes", `${path} ${each.policy}`))
    .map((each) => /** @type {const} */ ([badness(...each), each])).sort(([a], [b]) => b - a).map(([, each]) => each);
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
  const found = (path ? alertsOf("route", path) : alertsOf()).filter(([id]) => id !== "alone");
  if (!found.length) return path ? null : h("p", { key: "calm", class: "calm" }, icon("up"), "Nothing needs attention.");
  return h("ul", { key: "alerts", class: "alerts", "aria-label": "Alerts" }, found.map(([id, each]) =>
    h("li", { key: id, class: `alert is-${each.level}` }, icon(each.level === "info" ? "info" : each.level === "error" ? "cross" : "warn", each.level),
      h("bdi", { class: "alert-text" }, cut(each.text, 400), each.do ? h("code", { class: "do" }, cut(each.do, 160)) : null, blamed(each)),
      each.route ? h("a", { href: link("route", each.route) }, "route") : null,
      each.upstream ? h("a", { href: link("upstreams", each.upstream) }, "upstream") : null,
      each.instance ? h("a", { href: link("instances") }, "instance") : null,
      /^(dead|jobs?):/.test(id) ? h("a", { href: link("jobs") }, "jobs") : null,
      h("span", { class: "dim" }, since(each.since)),
      each.culprits.length === 1 ? h("span", { class: "acts" }, drainButton(each.culprits[0].upstream)) : null)));
}

/** Several upstreams at fault, each with its own reason and time. @param {Alert} alert */
function blamed({ culprits: all }) {
  const more = all.length - MOST_NAMED;
  return all.length < 2 ? null : h("ul", { class: "sick" }, all.slice(0, MOST_NAMED).map((each) => h("li", { key: each.upstream }, who(each.upstream, 40),
    h("small", { class: "why" }, cut(each.why, 160), each.why ? ", " : null, since(each.since),
      each.failed ? `, ${plural(each.failed, "request")} failed` : null),
    drainButton(each.upstream))), more > 0 ? h("li", { class: "dim" }, `and ${more} more`) : null);
}

/** What is wrong with a route that no alert on the sick of its upstreams says, and these. @param {string} path @param {string[]} sick */
function troubles(path, sick) {
  const more = sick.length - MOST_NAMED;
  return [
    alertsOf("route", path).filter(([id]) => !/^(ejected|down|spared):/.test(id)).map(([id, each]) =>
      h("p", { key: id, class: `told is-${each.level}` }, cut(each.text, 200), ", ", since(each.since))),
    sick.length ? h("ul", { key: "sick", class: "sick" }, sick.slice(0, MOST_NAMED).map((member) => h("li", { key: member },
      health(fleet.upstreams.get(member)), who(member, 40), reason(member), drainButton(member))),
    more > 0 ? h("li", { class: "dim" }, `and ${more} more`) : null) : null,
  ];
}

/** @param {string} path @param {Route} route */
function routeCard(path, route) {
  const { inflight, room, queues } = load(path), waiting = queues.filter((each) => each.depth > 0);
  const upstreams = route.members.map((member) => fleet.upstreams.get(member)), told = alertsOf("route", path);
  const sick = inOrder(route.members.filter((member) => trouble(member).grave)), isTold = sick.length || told.length;
  const level = gravity(told[0]?.[1]) ? told[0][1].level : sick.length ? "warning" : "info";
  const figure = (/** @type {string} */ value, /** @type {string} */ unit) => h("span", { class: "figure" }, h("b", null, value), unit);
  return h("section", { key: path, class: `card route is-${level}`,
    memo: [route, inflight, room, isTold && ticked(), may("admin"), ...told.map(([, each]) => each), ...waiting, ...upstreams] }, () => [
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
    troubles(path, sick),
    route.members.length ? h("div", { class: route.members.length > 40 ? "cells is-many" : "cells", role: "group",
      "aria-label": "Upstreams and their slots" },
      inOrder(route.members).map((member) => cell(member, fleet.upstreams.get(member))))
      : none("It has no upstreams.")]);
}
