// The slb processes: instances, and the workers of supervisors.

import { app, now } from "../app.js";
import { h } from "../dom.js";
import { count, name, plural, rate, seconds, span } from "../format.js";
import { badge, card, table } from "../parts.js";
import { viewOf } from "../state.js";

export function instances() {
  const { fleet } = app, ids = Object.keys(fleet.instances), self = viewOf(fleet)?.id;
  const of = (/** @type {string} */ id) => fleet.instances[id];
  return card("Instances and workers", table("instances", "Instances and workers", [
    { name: "Name", by: (id) => of(id).name, cell: (id) => [
      of(id).group !== of(id).name ? h("span", { class: "dim" }, "└ ") : null, name(of(id).name, 40), " ",
      id === self ? badge("this one", "set") : null, of(id).draining ? badge("draining", "warn") : null,
      (of(id).silent_for ?? 0) > 3 ? badge(`silent for ${span(of(id).silent_for)}`, "bad") : null] },
    { name: "Roles", by: (id) => of(id).roles.join(), cell: (id) => of(id).roles.join(", ") },
    { name: "Req/s", right: true, down: true, by: (id) => of(id).rate, cell: (id) => rate(of(id).rate) },
    { name: "In flight", right: true, down: true, by: (id) => of(id).inflight, cell: (id) => count(of(id).inflight) },
    { name: "p50", right: true, down: true, by: (id) => of(id).p50, cell: (id) => seconds(of(id).p50) },
    { name: "p99", right: true, down: true, by: (id) => of(id).p99, cell: (id) => seconds(of(id).p99) },
    { name: "Errors/s", right: true, down: true, by: (id) => of(id).error_rate,
      cell: (id) => h("span", { class: of(id).error_rate ? "bad" : "dim" }, rate(of(id).error_rate)) },
    { name: "Connections", right: true, down: true, by: (id) => of(id).connections, cell: (id) => count(of(id).connections) },
    { name: "Redis", by: (id) => of(id).redis_mode, cell: (id) => redis(of(id)) },
    { name: "Mirror age", right: true, down: true, by: (id) => of(id).staleness, cell: (id) => seconds(of(id).staleness) },
    { name: "Up for", right: true, by: (id) => -of(id).started, cell: (id) => span(now() - of(id).started) },
    { name: "Version", by: (id) => of(id).version, cell: (id) => name(of(id).version, 16) },
    { name: "Zone", by: (id) => of(id).zone, cell: (id) => name(of(id).zone, 20) },
    { name: "Listens at", by: (id) => of(id).address, cell: (id) => [name(of(id).address, 40),
      h("small", { class: "why" }, name(of(id).host, 24), ` pid ${of(id).pid}`)] },
  ], ids, (id) => id), h("span", { class: "dim" }, plural(ids.length, "process", "processes")));
}

/** @param {Instance} instance */
function redis(instance) {
  if (instance.redis_up === null) return "–";
  return instance.redis_up ? badge(instance.redis_mode, instance.redis_mode === "sync" ? "good" : "warn") : badge("away", "bad");
}
