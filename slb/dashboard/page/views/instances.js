// The slb processes: instances, and the workers of supervisors.

import { now } from "../app.js";
import { h } from "../dom.js";
import { count, name, plural, rate, seconds, span } from "../format.js";
import { alarming, badge, card, figures, names, table } from "../parts.js";
import { fleet } from "../state.js";

export function instances() {
  const rows = [...fleet.instances], self = fleet.view.get("self")?.id;
  return card("Instances and workers", table("instances", "Instances and workers", rows, ([id]) => id, [
    { name: "Name", by: ([, each]) => each.name, cell: ([id, each]) => [
      each.group !== each.name ? h("span", { class: "dim" }, "└ ") : null, name(each.name, 40), " ",
      id === self ? badge("this one", "set") : null, each.draining ? badge("draining", "warn") : null,
      (each.silent_for ?? 0) > 3 ? badge(`silent for ${span(each.silent_for)}`, "bad") : null] },
    { name: "Roles", by: ([, each]) => each.roles.join(), cell: ([, each]) => each.roles.join(", ") },
    figures("Req/s", ([, each]) => each.rate, rate), figures("In flight", ([, each]) => each.inflight, count),
    figures("p50", ([, each]) => each.p50, seconds), figures("p99", ([, each]) => each.p99, seconds),
    figures("Errors/s", ([, each]) => each.error_rate, alarming),
    figures("Connections", ([, each]) => each.connections, count),
    { name: "Redis", by: ([, each]) => each.redis_mode, cell: ([, { redis_up: isUp, redis_mode: mode }]) =>
      (isUp === null ? "–" : isUp ? badge(mode, mode === "sync" ? "good" : "warn") : badge("away", "bad")) },
    figures("Mirror age", ([, each]) => each.staleness, seconds),
    figures("Up for", ([, each]) => now() - each.started, span),
    names("Version", ([, each]) => each.version, 16), names("Zone", ([, each]) => each.zone, 20),
    { name: "Listens at", by: ([, each]) => each.address, cell: ([, each]) => [name(each.address, 40),
      h("small", { class: "why" }, name(each.host, 24), ` pid ${each.pid}`)] },
  ]), h("span", { class: "dim" }, plural(rows.length, "process", "processes")));
}
