// The quota router's models: tokens, slots, and who waits.

import { app } from "../app.js";
import { pauseQuota } from "../actions.js";
import { h } from "../dom.js";
import { count, cut, name, percent } from "../format.js";
import { badge, button, card, filled, none, table } from "../parts.js";
import { may } from "../state.js";

export function quota() {
  const models = app.fleet.quota, names = Object.keys(models), isAdmin = may(app.fleet, "admin");
  if (!names.length) return none("No model has a quota: PUT /models/NAME of an slb with the role quota sets one.");
  const used = (/** @type {string} */ model) => models[model].slots_limit ? models[model].slots / models[model].slots_limit : 0;
  return card("Quota", table("quota", "Quota by model", [
    { name: "Model", by: (model) => model, cell: (model) => [name(model, 40), " ", models[model].paused ? badge("paused", "warn") : null] },
    { name: "Calls", by: used, down: true, cell: (model) => filled(models[model].slots, models[model].slots_limit) },
    { name: "Tokens to spend", by: (model) => models[model].tokens / (models[model].tokens_limit || 1),
      cell: (model) => `${count(models[model].tokens)} of ${count(models[model].tokens_limit)} a minute` },
    { name: "Share", right: true, by: (model) => models[model].share,
      cell: (model) => { const share = models[model].share; return share === undefined || share === null ? "–" : percent(share); } },
    { name: "Callers waiting", right: true, down: true, by: (model) => models[model].waiting, cell: (model) => count(models[model].waiting) },
    ...(isAdmin ? [{ name: "", cell: (/** @type {string} */ model) => button(models[model].paused ? "Resume" : "Pause",
      () => pauseQuota(model, !models[model].paused), { class: "quiet", "aria-label": `${models[model].paused ? "Resume" : "Pause"} ${cut(model)}` }) }]
        : []),
  ], names, (model) => model));
}
