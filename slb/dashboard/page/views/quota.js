// The quota router's models: tokens, slots, and who waits.

import { app } from "../app.js";
import { pauseQuota } from "../actions.js";
import { h } from "../dom.js";
import { count, cut, name, percent } from "../format.js";
import { badge, button, card, filled, none, table } from "../parts.js";
import { may } from "../state.js";

export function quota() {
  const models = [...app.fleet.quota], isAdmin = may(app.fleet, "admin");
  if (!models.length) return none("No model has a quota: PUT /models/NAME of an slb with the role quota sets one.");
  const used = (/** @type {Quota} */ each) => (each.slots_limit ? each.slots / each.slots_limit : 0);
  return card("Quota", table("quota", "Quota by model", [
    { name: "Model", by: ([model]) => model, cell: ([model, each]) => [name(model, 40), " ", each.paused ? badge("paused", "warn") : null] },
    { name: "Calls", by: ([, each]) => used(each), down: true, cell: ([, each]) => filled(each.slots, each.slots_limit) },
    { name: "Tokens to spend", by: ([, each]) => each.tokens / (each.tokens_limit || 1),
      cell: ([, each]) => `${count(each.tokens)} of ${count(each.tokens_limit)} a minute` },
    { name: "Share", right: true, by: ([, each]) => each.share,
      cell: ([, each]) => { const share = each.share; return share === undefined || share === null ? "–" : percent(share); } },
    { name: "Callers waiting", right: true, down: true, by: ([, each]) => each.waiting, cell: ([, each]) => count(each.waiting) },
    ...(isAdmin ? [{ name: "", cell: (/** @type {[string, Quota]} */ [model, each]) => button(each.paused ? "Resume" : "Pause",
      () => pauseQuota(model, !each.paused), { class: "quiet", "aria-label": `${each.paused ? "Resume" : "Pause"} ${cut(model)}` }) }]
        : []),
  ], models, ([model]) => model));
}
