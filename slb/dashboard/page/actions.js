// What an operator may do: asked once more, done by the API, undone where that is possible.

import { app, call, fetchOnce, routeUrl, toast } from "./app.js";
import { h, patch } from "./dom.js";
import { cut, percent, plural } from "./format.js";
import { button } from "./parts.js";
import { ifDrained, loads } from "./state.js";

/** @typedef {{name: string, label: string, value?: string, hint?: string, type?: string, options?: string[]}} Field */

/**
 * Ask, then do. What the API refuses stands in the dialog, in its words.
 * @param {{title: string, text?: Child, fields?: Field[], does: string, isDanger?: boolean,
 *   run: (values: Record<string, string>) => Promise<void>}} what
 */
export function ask(what) {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("dialog"));
  let fault = "", isBusy = false;
  const draw = () => patch(dialog, [
    h("form", { key: what.title, onsubmit: run, "aria-labelledby": "dialog-title" },
      h("h2", { id: "dialog-title" }, what.title),
      what.text ? h("div", { class: "dialog-text" }, what.text) : null,
      (what.fields ?? []).map(field),
      h("p", { class: "fault", role: "alert" }, fault),
      h("div", { class: "buttons" }, button("Cancel", () => dialog.close()),
        h("button", { type: "submit", class: what.isDanger ? "danger" : "primary", disabled: isBusy }, what.does))),
  ]);
  const run = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(/** @type {HTMLFormElement} */ (event.target)));
    [isBusy, fault] = [true, ""];
    draw();
    try {
      await what.run(/** @type {Record<string, string>} */ (values));
      dialog.close();
    } catch (error) {
      fault = error instanceof Error ? cut(error.message, 2000) : String(error);
    }
    isBusy = false;
    draw();
  };
  patch(dialog, []);
  draw();
  dialog.showModal();
}

/** @param {Field} each */
function field(each) {
  const props = { name: each.name, value: each.value ?? "", autocomplete: "off", spellcheck: "false" };
  const list = each.options ? `options-${each.name}` : null;
  return h("label", { class: "field" }, h("span", null, each.label),
    h("input", { ...props, type: each.type ?? "text", list }),
    list ? h("datalist", { id: list }, each.options?.map((option) => h("option", { value: option }))) : null,
    each.hint ? h("small", null, each.hint) : null);
}

/** Undo, and say so. @param {string} text @param {() => Promise<unknown>} run */
function undoing(text, run) {
  return async () => {
    try {
      await run();
      toast(text);
    } catch (error) {
      toast(error instanceof Error ? error.message : String(error), null, true);
    }
  };
}

/** @param {string} member @param {unknown} changes */
function patchUpstream(member, changes) {
  return call("PATCH", `/upstreams/${encodeURIComponent(member)}`, changes);
}

/** What drains would leave, in words. @param {string} member */
export function drainTold(member) {
  const left = ifDrained(app.fleet, member, loads(app.fleet));
  return h("ul", null, left.map((each) => h("li", null,
    h("bdi", null, cut(each.path)), each.used === 0
      ? ": no other upstream is left"
      : each.share === null ? `: ${plural(each.used, "upstream")}, for ${each.inflight} in flight now`
        : `: ${plural(each.used, "upstream")} with ${plural(each.room, "slot")} for ${each.inflight} in flight now, ${percent(each.share)}`)));
}

/** @param {string} member */
export function drain(member) {
  const shown = cut(member);
  ask({
    title: `Drain ${shown}?`, does: "Drain", isDanger: true,
    text: [h("p", null, "It gets nothing new, on any route; what runs there goes on. What is left:"), drainTold(member)],
    run: async () => {
      await patchUpstream(member, { drain: true });
      toast(`${shown} drains`, undoing(`${shown} takes requests again`, () => patchUpstream(member, { drain: null })));
    },
  });
}

/** @param {string} member */
export function undrain(member) {
  const shown = cut(member);
  ask({
    title: `Let ${shown} take requests again?`, does: "End the drain",
    run: async () => {
      await patchUpstream(member, { drain: null });
      toast(`${shown} takes requests again`, undoing(`${shown} drains`, () => patchUpstream(member, { drain: true })));
    },
  });
}

/** @param {string} member @param {number} before */
export function weigh(member, before) {
  const shown = cut(member);
  ask({
    title: `Weight of ${shown}`, does: "Set", text: h("p", null, "Its share under weighted_round_robin."),
    fields: [{ name: "weight", label: "Weight", value: String(before), hint: "1 to 1000", type: "number" }],
    run: async ({ weight }) => {
      await patchUpstream(member, { weight: weight === "" ? null : Number(weight) });
      toast(`${shown} has the weight ${weight || 1}`, undoing(`${shown} has the weight ${before} again`, () => patchUpstream(member, { weight: before })));
    },
  });
}

/** @param {string} [path] */
export function register(path = "") {
  ask({
    title: "Register an upstream", does: "Register",
    fields: [
      { name: "path", label: "Route", value: path, hint: "such as /models/flux; a new one begins with its first upstream",
        options: [...app.fleet.routes.keys()] },
      { name: "target", label: "Target", hint: "10.0.0.1:80, https://gpu-1.internal, dns://flux.internal:8000" },
      { name: "slots", label: "Slots", hint: "requests at once; empty: 1", type: "number" },
      { name: "weight", label: "Weight", hint: "empty: 1", type: "number" },
      { name: "zone", label: "Zone" }, { name: "node", label: "Node" },
    ],
    run: async ({ path, target, slots, weight, zone, node }) => {
      const numbers = { ...(slots && { slots: Number(slots) }), ...(weight && { weight: Number(weight) }) };
      const answer = await call("POST", "/register", { path, target, ...numbers, ...(zone && { zone }), ...(node && { node }) });
      const entry = { path: answer.path, target: answer.target }, shown = `${cut(answer.target)} in ${cut(answer.path)}`;
      if (!answer.added) toast(`${shown} was registered before`);
      else toast(`${shown} is registered`, undoing(`${shown} is deregistered`, () => call("DELETE", "/register", entry)));
    },
  });
}

/** @param {string} path @param {string} member */
export function deregister(path, member) {
  const shown = `${cut(member)} in ${cut(path)}`, upstream = app.fleet.upstreams.get(member);
  const kept = upstream ? { weight: upstream.weight, slots: upstream.slots, ...(upstream.zone && { zone: upstream.zone }),
    ...(upstream.node && { node: upstream.node }) } : {};
  ask({
    title: `Deregister ${cut(member)}?`, does: "Deregister", isDanger: true,
    text: h("p", null, `It leaves the route ${cut(path)}. What runs there goes on; one that keeps itself registered comes back.`),
    run: async () => {
      await call("DELETE", "/register", { path, target: member });
      toast(`${shown} is deregistered`, undoing(`${shown} is registered again`, () => call("POST", "/register", { path, target: member, ...kept })));
    },
  });
}

/** Set a route's setting, or, with an empty value, unset it. @param {string} path @param {string} [setting] */
export function setSetting(path, setting = "") {
  const route = app.fleet.routes.get(path);
  const value = setting && route ? written(route.settings[setting]) : "";
  ask({
    title: `A setting of ${cut(path)}`, does: "Set",
    text: h("p", null, "It is kept in Redis and holds at all instances at once. An empty value unsets it, so that the file's or the default holds."),
    fields: [
      { name: "setting", label: "Setting", value: setting, options: Object.keys(route?.settings ?? {}) },
      { name: "value", label: "Value", value, hint: "as in the config file: 30s, true, 0.5, least_inflight" },
    ],
    run: async ({ setting, value }) => {
      const isOurs = route?.sources[setting] === "hash", before = isOurs ? written(route.settings[setting]) : null;
      await call("PATCH", routeUrl(path), { [setting]: value === "" ? null : value });
      const text = value === "" ? `${setting} of ${cut(path)} is unset` : `${setting} of ${cut(path)} is ${cut(value)}`;
      toast(text, undoing(`${setting} of ${cut(path)} is as before`, () => call("PATCH", routeUrl(path), { [setting]: before })));
    },
  });
}

/** A setting's value as one writes it. @param {unknown} value */
export function written(value) {
  return value === null || value === undefined ? "none" : typeof value === "string" ? value : JSON.stringify(value);
}

/** @param {string} model @param {boolean} paused */
export function pauseModel(model, paused) {
  const put = (/** @type {boolean} */ value) => call("PATCH", `/admin/model-configs/${encodeURIComponent(model)}`, { paused: value });
  pausing(model, paused, "No job of it begins; those that run go on.", put);
}

/** @param {string} model @param {boolean} paused */
export function pauseQuota(model, paused) {
  const put = (/** @type {boolean} */ value) => call("PUT", `/models/${encodeURIComponent(model)}`, { paused: value });
  pausing(model, paused, "Callers are told to wait.", put);
}

/** @param {string} model @param {boolean} paused @param {string} text @param {(paused: boolean) => Promise<unknown>} put */
function pausing(model, paused, text, put) {
  const says = (/** @type {boolean} */ value) => `${cut(model)} ${value ? "is paused" : "goes on"}`;
  ask({
    title: `${paused ? "Pause" : "Resume"} ${cut(model)}?`, does: paused ? "Pause" : "Resume", isDanger: paused,
    text: paused ? h("p", null, text) : null,
    run: async () => {
      await put(paused);
      toast(says(paused), undoing(says(!paused), () => put(!paused)));
    },
  });
}

/** Where dead jobs are listed. @param {string} model @param {string} error */
export function deadUrl(model, error) {
  const query = new URLSearchParams({ ...(model && { model }), ...(error && { error }) }).toString();
  return `/admin/dlq${query ? `?${query}` : ""}`;
}

/** Let one dead job begin again, or remove it. @param {Job} job @param {boolean} [removes] */
export function settleJob(job, removes = false) {
  const one = `/admin/dlq/${encodeURIComponent(job.job_id)}`, query = `?model=${encodeURIComponent(job.model)}`;
  ask({
    title: `${removes ? "Remove" : "Retry"} the job ${cut(job.job_id)}?`, does: removes ? "Remove" : "Retry", isDanger: removes,
    text: h("p", null, removes ? "It is forgotten, with its payload. This cannot be undone." : "It begins again, with all its attempts."),
    run: async () => {
      await (removes ? call("DELETE", one + query) : call("POST", `${one}/retry${query}`));
      toast(`${cut(job.job_id)} ${removes ? "is removed" : "begins again"}`);
      listDead(true);
    },
  });
}

/** @param {string} model empty: of all @param {string} error empty: whatever they failed by */
export function retryAll(model, error) {
  ask({
    title: "Retry dead jobs?", does: "Retry all",
    text: h("p", null, `All dead jobs ${model ? `of ${cut(model)}` : "of all models"}${error ? ` that failed by “${cut(error, 120)}”` : ""} begin again.`),
    run: async () => {
      const { retried } = await call("POST", deadUrl(model, error).replace("/admin/dlq", "/admin/dlq/retry-all"));
      toast(`${plural(retried, "job")} ${retried === 1 ? "begins" : "begin"} again`);
      listDead(true);
    },
  });
}

/** The page of dead jobs that the filters ask for. @param {boolean} [again] */
export function listDead(again = false) {
  const model = app.filters["dead-model"] ?? "", error = app.filters["dead-error"] ?? "";
  return fetchOnce("dead", deadUrl(model, error), again);
}
