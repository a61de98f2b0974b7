// The slb processes: instances, and the workers of supervisors.

import { app, now } from "../app.js";
import { h } from "../dom.js";
import { count, name, plural, rate, seconds, span } from "../format.js";
import { badge, card, table } from "../parts.js";
import { viewOf } from "../state.js";

export function instances() {
  const { fleet } = app, rows = [...fleet.instances], self = viewOf(fleet)?.id;
  return card("Instances and workers", table("instances", "Instances and workers", [
    { name: "Name", by: ([, each]) => each.name, cell: ([id, each]) => [
      each.group !== each.name ? h("span", { class: "dim" }, "└ ") : null, name(each.name, 40), " ",
      id === self ? badge("this one", "set") : null, each.draining ? badge("draining", "warn") : null,
      (each.silent_for ?? 0) > 3 ? badge(`silent for ${span(each.silent_for)}`, "bad") : null] },
    { name: "Roles", by: ([, each]) => each.roles.join(), cell: ([, each]) => each.roles.join(", ") },
    { name: "Req/s", right: true, down: true, by: ([, each]) => each.rate, cell: ([, each]) => rate(each.rate) },
    { name: "In flight", right: true, down: true, by: ([, each]) => each.inflight, cell: ([, each]) => count(each.inflight) },
    { name: "p50", right: true, down: true, by: ([, each]) => each.p50, cell: ([, each]) => seconds(each.p50) },
    { name: "p99", right: true, down: true, by: ([, each]) => each.p99, cell: ([, each]) => seconds(each.p99) },
    { name: "Errors/s", right: true, down: true, by: ([, each]) => each.error_rate,
      cell: ([, each]) => h("span", { class: each.error_rate ? "bad" : "dim" }, rate(each.error_rate)) },
    { name: "Connections", right: true, down: true, by: ([, each]) => each.connections, cell: ([, each]) => count(each.connections) },
    { name: "Redis", by: ([, each]) => each.redis_mode, cell: ([, each]) => redis(each) },
    { name: "Mirror age", right: true, down: true, by: ([, each]) => each.staleness, cell: ([, each]) => seconds(each.staleness) },
    { name: "Up for", right: true, by: ([, each]) => -each.started, cell: ([, each]) => span(now() - each.started) },
    { name: "Version", by: ([, each]) => each.version, cell: ([, each]) => name(each.version, 16) },
    { name: "Zone", by: ([, each]) => each.zone, cell: ([, each]) => name(each.zone, 20) },
    { name: "Listens at", by: ([, each]) => each.address, cell: ([, each]) => [name(each.address, 40),
      h("small", { class: "why" }, name(each.host, 24), ` pid ${each.pid}`)] },
  ], rows, ([id]) => id), h("span", { class: "dim" }, plural(rows.length, "process", "processes")));
}

/** @param {Instance} instance */
function redis(instance) {
  if (instance.redis_up === null) return "–";
  return instance.redis_up ? badge(instance.redis_mode, instance.redis_mode === "sync" ? "good" : "warn") : badge("away", "bad");
}
