// The slb processes: instances, and the workers of supervisors.

import { now } from "../app.js";
import { h, icon } from "../dom.js";
import { count, cut, name, natural, plural, rate, seconds, span } from "../format.js";
import { alarming, badge, card, figures, names, since, table } from "../parts.js";
import { alertsOf, fleet, gravity } from "../state.js";

export function instances() {
  const rows = [...fleet.instances].sort(([, a], [, b]) => natural(a.name, b.name)), self = fleet.view.get("self")?.id;
  return card("Instances and workers", table("instances", "Instances and workers", rows, ([id]) => id, [
    { name: "Name", by: ([, each]) => each.name, cell: ([id, each]) => [
      each.group !== each.name ? h("span", { class: "dim" }, "└ ") : null, name(each.name, 40), " ",
      id === self ? badge("this one", "set") : null, each.draining ? badge("draining", "warn") : null,
      (each.silent_for ?? 0) > 3 ? badge(`silent for ${span(each.silent_for)}`, "bad") : null] },
    { name: "State", first: true, down: true, by: grave, cell: ([id, each]) => state(id, each) },
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
  ], undefined, (row) => 2 * grave(row)), h("span", { class: "dim" }, plural(rows.length, "process", "processes")));
}

/** How bad it is with an instance; 0 is well. @param {[string, Instance]} row */
function grave([id, { redis_up: isUp }]) {
  return isUp === false ? 2 : gravity(alertsOf("instance", id)[0]?.[1]);
}

/** In the words of its alerts. @param {string} id @param {Instance} instance */
function state(id, { redis_up: isUp, staleness }) {
  const told = alertsOf("instance", id).map(([, each]) => each);
  const all = isUp === false ? [{ level: "error", text: "it has no Redis", since: staleness === null ? null : now() - staleness }, ...told] : told;
  return all.length ? all.map(({ level, text, since: at }) => h("span", { class: `told is-${level}` }, cut(text, 160), ", ", since(at)))
    : h("span", { class: "state is-up" }, icon("up"), "up");
}
