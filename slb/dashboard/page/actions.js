// What an operator may do: asked once more, done by the API, undone where that is possible.

import { app, call, fetchOnce, routeUrl, toast } from "./app.js";
import { h, patch } from "./dom.js";
import { cut, percent, plural } from "./format.js";
import { button, quiet } from "./parts.js";
import { fleet, ifDrained } from "./state.js";

/**
 * Ask, then do. What the API refuses stands in the dialog, in its words. Fields that are left empty have no value.
 * @param {{title: string, text?: Child, fields?: Field[], does: string, isDanger?: boolean,
 *   run: (values: Record<string, any>) => Promise<void>}} what
 */
function ask({ title, text, fields = [], does, isDanger, run }) {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("dialog"));
  let fault = "", isBusy = false;
  const draw = () => patch(dialog, [
    h("form", { key: title, onsubmit: submit, "aria-labelledby": "dialog-title" },
      h("h2", { id: "dialog-title" }, title),
      text ? h("div", { class: "dialog-text" }, text) : null,
      fields.map(({ name, label, value = "", hint, type = "text", options }) => h("label", { class: "field" }, h("span", null, label),
        h("input", { name, value, type, list: options && `options-${name}`, autocomplete: "off", spellcheck: "false" }),
        options ? h("datalist", { id: `options-${name}` }, options.map((option) => h("option", { value: option }))) : null,
        hint ? h("small", null, hint) : null)),
      h("p", { class: "fault", role: "alert" }, fault),
      h("div", { class: "buttons" }, button("Cancel", () => dialog.close()),
        h("button", { type: "submit", class: isDanger ? "danger" : "primary", disabled: isBusy }, does))),
  ]);
  const submit = async (/** @type {any} */ event) => {
    event.preventDefault();
    const given = [...new FormData(event.target)].filter(([, value]) => value !== "");
    const typed = given.map(([name, value]) => [name, event.target.elements[name].type === "number" ? Number(value) : value]);
    [isBusy, fault] = [true, ""];
    draw();
    try {
      await run(Object.fromEntries(typed));
      dialog.close();
    } catch (error) {
      fault = cut(error instanceof Error ? error.message : error, 2000);
    }
    isBusy = false;
    draw();
  };
  patch(dialog, []);
  draw();
  dialog.showModal();
}

/** Say that it is done, and offer to undo it. @param {string} says @param {string} undone @param {() => Promise<unknown>} undo */
function done(says, undone, undo) {
  toast(says, () => undo().then(() => toast(undone), (error) => toast(error.message, null, true)));
}

/** Switch it, and offer to switch it back.
 * @param {boolean} on @param {(on: boolean) => string} says @param {(on: boolean) => Promise<unknown>} put */
async function switched(on, says, put) {
  await put(on);
  done(says(on), says(!on), () => put(!on));
}

function patchUpstream(/** @type {string} */ member, /** @type {unknown} */ changes) {
  return call("PATCH", `/upstreams/${encodeURIComponent(member)}`, changes);
}

/** Drain, or end the drain. @param {string} member @param {boolean} on */
export function drain(member, on) {
  const shown = cut(member), left = ifDrained(fleet.upstreams.get(member)).map(({ path, used, room, inflight, share }) => {
    const those = plural(used, "upstream"), load = `for ${inflight} in flight now`;
    return h("li", null, h("bdi", null, cut(path)), used === 0 ? ": no other upstream is left"
      : share === null ? `: ${those}, ${load}` : `: ${those} with ${plural(room, "slot")} ${load}, ${percent(share)}`);
  });
  ask({
    title: on ? `Drain ${shown}?` : `Let ${shown} take requests again?`, does: on ? "Drain" : "End the drain", isDanger: on,
    text: on && [h("p", null, "It gets nothing new, on any route; what runs there goes on. What is left:"), h("ul", null, left)],
    run: () => switched(on, (drains) => `${shown} ${drains ? "drains" : "takes requests again"}`,
      (drains) => patchUpstream(member, { drain: drains || null })),
  });
}

export function weigh(/** @type {string} */ member, /** @type {number} */ before) {
  const shown = cut(member);
  ask({
    title: `Weight of ${shown}`, does: "Set", text: h("p", null, "Its share under weighted_round_robin."),
    fields: [{ name: "weight", label: "Weight", value: String(before), hint: "1 to 1000", type: "number" }],
    run: async ({ weight = null }) => {
      await patchUpstream(member, { weight });
      done(`${shown} has the weight ${weight ?? 1}`, `${shown} has the weight ${before} again`, () => patchUpstream(member, { weight: before }));
    },
  });
}

export function register(path = "") {
  ask({
    title: "Register an upstream", does: "Register",
    fields: [
      { name: "path", label: "Route", value: path, hint: "such as /models/flux; a new one begins with its first upstream",
        options: [...fleet.routes.keys()] },
      { name: "target", label: "Target", hint: "10.0.0.1:80, https://gpu-1.internal, dns://flux.internal:8000" },
      { name: "slots", label: "Slots", hint: "requests at once; empty: 1", type: "number" },
      { name: "weight", label: "Weight", hint: "empty: 1", type: "number" },
      { name: "zone", label: "Zone" }, { name: "node", label: "Node" },
    ],
    run: async (values) => {
      const { added, path, target } = await call("POST", "/register", values), shown = `${cut(target)} in ${cut(path)}`;
      if (!added) toast(`${shown} was registered before`);
      else done(`${shown} is registered`, `${shown} is deregistered`, () => call("DELETE", "/register", { path, target }));
    },
  });
}

export function deregister(/** @type {string} */ path, /** @type {string} */ target) {
  const shown = `${cut(target)} in ${cut(path)}`, { weight, slots, zone, node } = fleet.upstreams.get(target) ?? {};
  ask({
    title: `Deregister ${cut(target)}?`, does: "Deregister", isDanger: true,
    text: h("p", null, `It leaves the route ${cut(path)}. What runs there goes on; one that keeps itself registered comes back.`),
    run: async () => {
      await call("DELETE", "/register", { path, target });
      const before = { path, target, weight, slots, zone: zone || null, node: node || null };
      done(`${shown} is deregistered`, `${shown} is registered again`, () => call("POST", "/register", before));
    },
  });
}

/** Set a route's setting, or, with an empty value, unset it. @param {string} path @param {string} [setting] */
export function setSetting(path, setting = "") {
  const { settings = {}, sources = {} } = fleet.routes.get(path) ?? {}, value = setting && written(settings[setting]);
  const put = (/** @type {string} */ name, /** @type {string | null} */ value) => call("PATCH", routeUrl(path), { [name]: value });
  ask({
    title: `A setting of ${cut(path)}`, does: "Set",
    text: h("p", null, "It is kept in Redis and holds at all instances at once. An empty value unsets it, so that the file's or the default holds."),
    fields: [
      { name: "setting", label: "Setting", value: setting, options: Object.keys(settings) },
      { name: "value", label: "Value", value, hint: "as in the config file: 30s, true, 0.5, least_inflight" },
    ],
    run: async ({ setting = "", value = null }) => {
      const before = sources[setting] === "hash" ? written(settings[setting]) : null, shown = `${setting} of ${cut(path)}`;
      await put(setting, value);
      done(`${shown} is ${value === null ? "unset" : cut(value)}`, `${shown} is as before`, () => put(setting, before));
    },
  });
}

/** A setting's value as one writes it. @param {unknown} value */
export function written(value) {
  return value === null || value === undefined ? "none" : typeof value === "string" ? value : JSON.stringify(value);
}

/** Pauses a model, or lets it go on. @param {string} model @param {boolean | undefined} isPaused @param {string} told
 * @param {string} method @param {string} path of all models */
export function pauseButton(model, isPaused, told, method, path) {
  const does = isPaused ? "Resume" : "Pause", title = `${does} ${cut(model)}`;
  return quiet(does, () => ask({
    title: `${title}?`, does, isDanger: !isPaused, text: !isPaused && h("p", null, told),
    run: () => switched(!isPaused, (paused) => `${cut(model)} ${paused ? "is paused" : "goes on"}`,
      (paused) => call(method, `${path}/${encodeURIComponent(model)}`, { paused })),
  }), title);
}

/** Let one dead job begin again, or remove it. @param {Job} job @param {boolean} [removes] */
export function settleJob(job, removes = false) {
  const one = `/admin/dlq/${encodeURIComponent(job.job_id)}`, query = `?model=${encodeURIComponent(job.model)}`, does = removes ? "Remove" : "Retry";
  ask({
    title: `${does} the job ${cut(job.job_id)}?`, does, isDanger: removes,
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
    text: h("p", null, `All dead jobs of ${cut(model || "all models")}${error && ` that failed by “${cut(error, 120)}”`} begin again.`),
    run: async () => {
      const { retried } = await call("POST", `/admin/dlq/retry-all?${new URLSearchParams({ model, error })}`);
      toast(`${plural(retried, "job")} ${retried === 1 ? "begins" : "begin"} again`);
      listDead(true);
    },
  });
}

/** The page of dead jobs that the filters ask for. @param {boolean} [again] */
export function listDead(again = false) {
  const { "dead-model": model = "", "dead-error": error = "" } = app.filters;
  return fetchOnce("dead", `/admin/dlq?${new URLSearchParams({ model, error })}`, again);
}
