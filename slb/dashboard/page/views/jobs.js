// All queues of jobs at one glance, and the jobs that were given up.

import { app, now, ticked } from "../app.js";
import { listDead, pauseButton, retryAll, settleJob } from "../actions.js";
import { h } from "../dom.js";
import { capital, count, cut, name, plural, rate, span } from "../format.js";
import { alarming, badge, button, card, figures, filterField, names, none, quiet, table, tile } from "../parts.js";
import { fleet, may, total } from "../state.js";

const STATES = /** @type {const} */ (["processing", "queued", "retrying", "buffered"]);

export function jobs() {
  const models = [...fleet.jobs], all = [...fleet.jobs.values()], isAdmin = may("admin"), dead = total(all, (each) => each.dead);
  if (!models.length) return none("No model has jobs: they are submitted to POST /queue/submit of an slb with the role jobs.");
  return [
    h("div", { class: "tiles" }, tile("Jobs per second", rate(total(all, (each) => each.rate)), false),
      tile("Processing", count(total(all, (each) => each.processing)), false),
      tile("Waiting", count(total(all, (each) => (each.queued ?? 0) + (each.buffered ?? 0))), false),
      tile("Retrying", count(total(all, (each) => each.retrying)), false),
      tile("Given up", count(dead), dead > 0)),
    card("Models", table("models", "Models", models, ([model]) => model, [
      { name: "Model", by: ([model]) => model, cell: ([model, each]) => [name(model, 40), " ", each.paused ? badge("paused", "warn") : null] },
      { name: "Jobs", cell: ([, each]) => bar(each) },
      ...STATES.map((state) => figures(capital(state), (/** @type {[string, Model]} */ [, each]) => each[state] ?? 0, count)),
      figures("Jobs/s", ([, each]) => each.rate, rate),
      figures("Oldest waits", ([, each]) => (each.oldest_since ? ticked() - each.oldest_since : null), span),
      figures("Ended", ([, each]) => each.ended ?? 0, count), figures("Given up", ([, each]) => each.dead, (dead) => alarming(dead, count)),
      isAdmin && { name: "", cell: ([model, each]) =>
        pauseButton(model, each.paused, "No job of it begins; those that run go on.", "PATCH", "/admin/model-configs") },
    ], ([, each]) => [each, ticked()]),
      [...new Set(all.map((each) => each.at_risk))].map((each) => each && h("p", { class: "warn" }, cut(each, 300)))),
    failures(isAdmin), givenUp(isAdmin),
  ];
}

function bar(/** @type {Model} */ model) {
  const all = STATES.reduce((sum, state) => sum + (model[state] ?? 0), 0) || 1;
  const told = STATES.map((state) => `${state} ${model[state] ?? 0}`).join(", ");
  return h("span", { class: "stack", role: "img", "aria-label": told, title: told },
    STATES.map((state) => h("span", { class: `is-${state}`, breadth: `${((model[state] ?? 0) / all) * 100}%` })));
}

/** What jobs failed by, and what those wait for that are tried again, the most frequent first. @param {boolean} isAdmin */
function failures(isAdmin) {
  const rows = [...fleet.jobs].flatMap(([model, each]) => [...Object.entries(each.failed_by).map((row) => [...row, "given up"]),
    ...Object.entries(each.retried_by ?? {}).map((row) => [...row, "retrying"])].map(([error, times, state]) =>
    ({ model, error: String(error), times: Number(times), state: String(state) })));
  if (!rows.length) return null;
  const look = (/** @type {typeof rows[0]} */ row) => {
    Object.assign(app.filters, { "dead-model": row.model, "dead-error": row.error });
    listDead(true);
    app.draw();
  };
  return card("Failures by error", table("failures", "Failures by error", rows, (row) => `${row.model} ${row.state} ${row.error}`, [
    figures("Failures", (row) => row.times, count), names("Now", (row) => row.state, 10),
    names("Error", (row) => row.error, 120), names("Model", (row) => row.model, 40),
    { name: "", cell: (row) => row.state === "retrying" ? null : h("span", { class: "nowrap" }, may("jobs") ? quiet("Show", () => look(row)) : null,
      isAdmin ? quiet("Retry these", () => retryAll(row.model, row.error)) : null) },
  ]));
}

function givenUp(/** @type {boolean} */ isAdmin) {
  const title = "Given up (dead letters)";
  if (!may("jobs")) return card(title, none("To list them a token needs the right jobs or admin."));
  const { data, error } = listDead(), jobs = /** @type {Job[]} */ (data?.jobs ?? []);
  return card(title, [
    jobs.length ? table("dead", "Jobs that were given up", jobs, (job) => `${job.model} ${job.job_id}`, [
      { name: "Given up", down: true, by: (job) => job.completed_at ?? 0, cell: (job) => (job.completed_at ? `${span(now() - job.completed_at)} ago` : "–") },
      names("Job", (job) => job.job_id, 40), names("Model", (job) => job.model, 40),
      figures("Attempts", (job) => job.attempts, count), names("Error", (job) => job.error ?? "", 120),
      isAdmin && { name: "", cell: (job) => h("span", { class: "nowrap" }, quiet("Retry", () => settleJob(job), `Retry ${job.job_id}`),
        quiet("Remove", () => settleJob(job, true), `Remove ${job.job_id}`)) },
    ]) : none(error ?? (data ? "None." : "…")),
    data?.cursor ? h("p", { class: "dim" }, "There are more than these.") : null,
  ], [filterField("dead-model", "Model"), filterField("dead-error", "Text of the error"), button("List", () => listDead(true)),
    isAdmin ? button("Retry all", () => retryAll(app.filters["dead-model"] ?? "", app.filters["dead-error"] ?? ""), { icon: "again" }) : null,
    jobs.length ? h("span", { class: "dim" }, plural(jobs.length, "job")) : null]);
}
