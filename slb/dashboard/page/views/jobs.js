// All queues of jobs at one glance, and the jobs that were given up.

import { app, now, ticked } from "../app.js";
import { listDead, pauseModel, retryAll, settleJob } from "../actions.js";
import { h } from "../dom.js";
import { count, cut, name, plural, rate, span } from "../format.js";
import { badge, button, card, filterField, none, table } from "../parts.js";
import { may } from "../state.js";

const STATES = /** @type {const} */ (["processing", "queued", "retrying", "buffered"]);

export function jobs() {
  const models = [...app.fleet.jobs];
  if (!models.length) return none("No model has jobs: they are submitted to POST /queue/submit of an slb with the role jobs.");
  const sum = (/** @type {(model: Model) => number | undefined} */ of) => models.reduce((all, [, each]) => all + (of(each) ?? 0), 0);
  const isAdmin = may(app.fleet, "admin");
  return [
    h("div", { class: "tiles" }, tile("Jobs per second", rate(sum((each) => each.rate))), tile("Processing", count(sum((each) => each.processing))),
      tile("Waiting", count(sum((each) => (each.queued ?? 0) + (each.buffered ?? 0)))), tile("Retrying", count(sum((each) => each.retrying))),
      tile("Given up", count(sum((each) => each.dead)), sum((each) => each.dead) > 0)),
    card("Models", table("models", "Models", [
      { name: "Model", by: ([model]) => model, cell: ([model, each]) => [name(model, 40), " ", each.paused ? badge("paused", "warn") : null] },
      { name: "Jobs", cell: ([, each]) => bar(each) },
      ...STATES.map((state) => ({ name: state[0].toUpperCase() + state.slice(1), right: true, down: true,
        by: (/** @type {[string, Model]} */ [, each]) => each[state] ?? 0, cell: (/** @type {[string, Model]} */ [, each]) => count(each[state] ?? 0) })),
      { name: "Jobs/s", right: true, down: true, by: ([, each]) => each.rate, cell: ([, each]) => rate(each.rate) },
      { name: "Oldest waits", right: true, down: true, by: ([, each]) => waits(each), cell: ([, each]) => span(waits(each)) },
      { name: "Ended", right: true, down: true, by: ([, each]) => each.ended ?? 0, cell: ([, each]) => count(each.ended ?? 0) },
      { name: "Given up", right: true, down: true, by: ([, each]) => each.dead,
        cell: ([, each]) => h("span", { class: each.dead ? "bad" : "dim" }, count(each.dead)) },
      ...(isAdmin ? [{ name: "", cell: (/** @type {[string, Model]} */ [model, each]) => button(each.paused ? "Resume" : "Pause",
        () => pauseModel(model, !each.paused), { class: "quiet", "aria-label": `${each.paused ? "Resume" : "Pause"} ${cut(model)}` }) }]
          : []),
    ], models, ([model]) => model, ([, each]) => [each, isAdmin, ticked()]),
      [...new Set(models.map(([, each]) => each.at_risk).filter(Boolean))].map((each) => h("p", { class: "warn" }, cut(each, 300)))),
    failures(isAdmin), dead(isAdmin),
  ];
}

/** @param {string} label @param {string} figure @param {boolean} [isBad] */
function tile(label, figure, isBad = false) {
  return h("div", { class: isBad ? "tile is-bad" : "tile" }, h("span", { class: "label" }, label), h("strong", null, figure));
}

/** @param {Model} model */
function waits(model) {
  return model.oldest_since ? ticked() - model.oldest_since : null;
}

/** @param {Model} model */
function bar(model) {
  const all = STATES.reduce((sum, state) => sum + (model[state] ?? 0), 0) || 1;
  const told = STATES.map((state) => `${state} ${model[state] ?? 0}`).join(", ");
  return h("span", { class: "stack", role: "img", "aria-label": told, title: told },
    STATES.map((state) => h("span", { class: `is-${state}`, style: { width: `${((model[state] ?? 0) / all) * 100}%` } })));
}

/** What jobs failed by, the most frequent first. @param {boolean} isAdmin */
function failures(isAdmin) {
  const rows = [...app.fleet.jobs].flatMap(([model, each]) => Object.entries(each.failed_by).map(([error, times]) => ({ model, error, times })));
  if (!rows.length) return null;
  const mayList = may(app.fleet, "jobs");
  const look = (/** @type {typeof rows[0]} */ row) => {
    Object.assign(app.filters, { "dead-model": row.model, "dead-error": row.error });
    listDead(true);
    app.draw();
  };
  app.sorts.failures ??= { column: 0, down: true };
  return card("Failures by error", table("failures", "Failures by error", [
    { name: "Failures", right: true, down: true, by: (row) => row.times, cell: (row) => count(row.times) },
    { name: "Error", by: (row) => row.error, cell: (row) => name(row.error, 120) },
    { name: "Model", by: (row) => row.model, cell: (row) => name(row.model, 40) },
    { name: "", cell: (row) => h("span", { class: "nowrap" }, mayList ? button("Show", () => look(row), { class: "quiet" }) : null,
      isAdmin ? button("Retry these", () => retryAll(row.model, row.error), { class: "quiet" }) : null) },
  ], rows, (row) => `${row.model} ${row.error}`));
}

/** @param {boolean} isAdmin */
function dead(isAdmin) {
  if (!may(app.fleet, "jobs")) return card("Given up (dead letters)", none("To list them a token needs the right jobs or admin."));
  const { data, error } = listDead(), model = app.filters["dead-model"] ?? "", wanted = app.filters["dead-error"] ?? "";
  const found = /** @type {Job[]} */ (data?.jobs ?? []);
  app.sorts.dead ??= { column: 3, down: true };
  return card("Given up (dead letters)", [
    found.length ? table("dead", "Jobs that were given up", [
      { name: "Job", by: (job) => job.job_id, cell: (job) => name(job.job_id, 40) },
      { name: "Model", by: (job) => job.model, cell: (job) => name(job.model, 40) },
      { name: "Attempts", right: true, by: (job) => job.attempts, cell: (job) => job.attempts },
      { name: "Given up", right: true, down: true, by: (job) => job.completed_at ?? 0,
        cell: (job) => (job.completed_at ? `${span(now() - job.completed_at)} ago` : "–") },
      { name: "Error", by: (job) => job.error ?? "", cell: (job) => name(job.error ?? "", 120) },
      ...(isAdmin ? [{ name: "", cell: (/** @type {Job} */ job) => h("span", { class: "nowrap" },
        button("Retry", () => settleJob(job), { class: "quiet", "aria-label": `Retry ${job.job_id}` }),
          button("Remove", () => settleJob(job, true), { class: "quiet", "aria-label": `Remove ${job.job_id}` })) }] : []),
    ], found, (job) => `${job.model} ${job.job_id}`) : none(error ?? (data ? "None." : "…")),
    data?.cursor ? h("p", { class: "dim" }, "There are more than these.") : null,
  ], [filterField("dead-model", "Model"), filterField("dead-error", "Text of the error"), button("List", () => listDead(true)),
    isAdmin ? button("Retry all", () => retryAll(model, wanted), { icon: "again" }) : null,
      found.length ? h("span", { class: "dim" }, plural(found.length, "job")) : null]);
}
