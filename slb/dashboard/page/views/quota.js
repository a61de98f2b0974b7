// The quota router's models: tokens, slots, and who waits.

import { pauseButton } from "../actions.js";
import { now } from "../app.js";
import { h } from "../dom.js";
import { count, name, percent, plural, span } from "../format.js";
import { badge, card, figures, filled, none, table } from "../parts.js";
import { fleet, may } from "../state.js";

export function quota() {
  const models = [...fleet.quota];
  if (!models.length) return none("No model has a quota: PUT /models/NAME of an slb with the role quota sets one.");
  return card("Quota", table("quota", "Quota by model", models, ([model]) => model, [
    { name: "Model", by: ([model]) => model, cell: ([model, each]) => [name(model, 40), " ", each.paused ? badge("paused", "warn") : null] },
    { name: "Calls", by: ([, each]) => each.slots / (each.slots_limit || Infinity), down: true, cell: ([, each]) => filled(each.slots, each.slots_limit) },
    { name: "Tokens to spend", by: ([, each]) => each.tokens / (each.tokens_limit || 1),
      cell: ([, each]) => `${count(each.tokens)} of ${count(each.tokens_limit)} a minute` },
    figures("Share", ([, each]) => each.share, (share) => (share == null ? "–" : percent(share))),
    figures("Callers waiting", ([, each]) => each.waiting, count),
    { name: "The next of them", cell: ([, each]) => each.next?.map(({ key, tokens, due }) =>
      h("div", null, key ? name(key, 40) : "without a key", `: ${plural(tokens, "token")}, ${due > now() ? `in ${span(due - now())}` : "now"}`)) },
    may("admin") && { name: "", cell: ([model, each]) => pauseButton(model, each.paused, "Callers are told to wait.", "PUT", "/models") },
  ]));
}
