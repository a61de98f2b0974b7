// The last hour of one route or one upstream.

import { routeUrl } from "../app.js";
import { chart } from "../chart.js";
import { h } from "../dom.js";
import { clock, count, cut, name, plural, rate, seconds } from "../format.js";
import { hourOf } from "../history.js";
import { card, none } from "../parts.js";
import { fleet, load, room, total } from "../state.js";

/** @typedef {[string, string, string]} Shown label, colour, figure */

const perSecond = (/** @type {Figures[0]} */ value) => (value === null ? "–" : `${rate(value)}/s`);

/** What a route does now; its first bytes are those of its upstreams, weighed by their requests. @param {string} path */
function ofRoute(path) {
  const route = fleet.routes.get(path), { inflight, queues } = load(path);
  const timed = (route?.members ?? []).map((member) => fleet.upstreams.get(member)).filter((each) => each?.first_byte != null);
  const weight = total(timed, (each) => each?.rate);
  return {
    requests: route?.rate ?? null, errors: route?.error_rate ?? null, inflight, waiting: total(queues, (each) => each.depth),
    first_byte: weight ? total(timed, (each) => (each?.first_byte ?? 0) * (each?.rate ?? 0)) / weight : null,
    p50: route?.p50 ?? null, p99: route?.p99 ?? null,
  };
}

function ofUpstream(/** @type {string} */ member) {
  const each = fleet.upstreams.get(member);
  return {
    requests: each?.rate ?? null, errors: each?.error_rate ?? null, inflight: each?.inflight ?? null,
    first_byte: each?.first_byte ?? null, latency: each?.latency ?? null,
  };
}

export function routeHour(/** @type {string} */ path) {
  return charts(routeUrl(path), () => ofRoute(path), load(path).room, [["waiting", "--warn", "waiting"]],
    [["p50", "--good", "p50"], ["p99", "--warn", "p99"]]);
}

export function upstreamHour(/** @type {string} */ member) {
  const upstream = fleet.upstreams.get(member);
  return charts(`/upstreams/${encodeURIComponent(member)}`, () => ofUpstream(member), upstream ? room(upstream) : 0, [],
    [["whole answer, mean", "--warn", "latency"]]);
}

/** @param {string} url @param {() => Now} now @param {number} slots 0: nobody has said
 * @param {Shown[]} busy more lines, beside what is in flight @param {Shown[]} times and beside the time to the first byte */
function charts(url, now, slots, busy, times) {
  const { time, values, data, error } = hourOf(url, now);
  const plotted = (/** @type {string} */ title, /** @type {Line["show"]} */ show, /** @type {Shown[]} */ shown, more = /** @type {Line[]} */ ([])) =>
    card(title, chart(title, time, [...shown.map(([label, colour, figure]) =>
      ({ label, colour, show, values: values(figure), spans: show === seconds })), ...more], show));
  const cap = { label: "slots now", colour: "--dim", dash: [4, 4], show: count, values: time.map(() => slots) };
  return h("section", { key: url, class: "hour", "aria-label": "The last hour" },
    h("div", { class: "charts" },
      plotted("Requests and failures", perSecond, [["requests", "--accent", "requests"], ["failed", "--bad", "errors"]]),
      plotted("In flight", count, [["in flight", "--accent", "inflight"], ...busy], slots ? [cap] : []),
      plotted("Latency", seconds, [["first byte, mean", "--accent", "first_byte"], ...times])),
    data ? known(data, time[0]) : none(error ? `What was before is not known: ${cut(error, 200)}` : "Asking for the last hour …"));
}

/** @param {Hour} data @param {Figures[0]} [since] */
function known({ requests, instances, missing }, since) {
  return h("p", { class: "dim" },
    requests.length ? `Since ${clock(since ?? 0)}, as ${plural(instances.length, "process has", "processes have")} kept it.` : "There were no requests before.",
    missing.length ? [" No answer came from ", missing.map((each, i) => [i ? ", " : "", name(each, 24)]), "."] : null);
}
