// The page: which view is shown, when it is drawn, how the connection is.

import { app, link, now, open, stream } from "./app.js";
import { repaint } from "./chart.js";
import { h, icon, patch } from "./dom.js";
import { clock, cut, name, plural, span } from "./format.js";
import { follow, load } from "./history.js";
import { badge, button } from "./parts.js";
import { apply, empty, viewOf } from "./state.js";
import { changes } from "./views/changes.js";
import { explain } from "./views/explain.js";
import { instances } from "./views/instances.js";
import { jobs } from "./views/jobs.js";
import { overview } from "./views/overview.js";
import { quota } from "./views/quota.js";
import { route } from "./views/route.js";
import { upstreams } from "./views/upstreams.js";

/** @type {Record<string, {title: string, draw: () => Child, isTab?: false}>} */
const VIEWS = {
  overview: { title: "Overview", draw: overview }, route: { title: "Route", draw: route, isTab: false },
  upstreams: { title: "Upstreams", draw: upstreams }, instances: { title: "Instances", draw: instances },
  jobs: { title: "Jobs", draw: jobs }, quota: { title: "Quota", draw: quota }, changes: { title: "Changes", draw: changes },
  explain: { title: "Explain", draw: explain },
};
const THEMES = ["auto", "light", "dark"], LATE = 5; // seconds without news after which that is said
const TOGETHER = 200; // milliseconds between what two events bring at most
const PATIENT = 1500; // milliseconds without a connection after which that is: a stream that is only opened anew is no trouble

const at = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
let isDrawn = true, soon = 0;

function draw() {
  if (!isDrawn) return;
  isDrawn = false;
  requestAnimationFrame(() => { // which a hidden page does not get
    isDrawn = true;
    const focused = document.activeElement;
    const view = VIEWS[app.at.name], title = app.at.name === "route" ? cut(app.at.argument) : view.title;
    const alerts = app.fleet.alerts.size;
    document.title = `${alerts ? `(${alerts}) ` : ""}${title} · slb`;
    patch(at("tabs"), Object.entries(VIEWS).map(([key, each]) => each.isTab === false ? null
      : h("a", { key, href: link(key), "aria-current": key === app.at.name || (key === "overview" && app.at.name === "route") ? "page" : null },
        each.title)));
    patch(at("link"), linkShown());
    patch(at("news"), [banner()]);
    at("title").textContent = title;
    at("title").className = app.at.name === "route" ? "" : "unseen"; // else the tab says it
    patch(at("view"), stream.link.state === "locked" || stream.link.state === "refused" ? [lock()]
      : viewOf(app.fleet) ? [h("div", { key: `${app.at.name} ${app.at.argument}`, class: `view of-${app.at.name}` }, view.draw())]
        : [h("p", { class: "none" }, "Asking this slb …")]);
    patch(at("toasts"), app.toasts.map((each) => h("div", { key: String(each.id), class: each.isError ? "toast is-bad" : "toast" },
      h("span", null, each.text),
      each.undo ? button("Undo", () => { gone(each.id); void each.undo?.(); }) : null,
        button("", () => gone(each.id), { icon: "cross", class: "quiet", "aria-label": "Close" }))));
    if (focused instanceof HTMLElement && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  });
}

/** What events bring is drawn together. */
function drawSoon() {
  soon ||= setTimeout(() => {
    soon = 0;
    draw();
  }, TOGETHER);
}

/** @param {number} id of a toast */
function gone(id) {
  app.toasts = app.toasts.filter((each) => each.id !== id);
  draw();
}

/** @returns {Child[]} */
function linkShown() {
  const view = viewOf(app.fleet), { state } = stream.link, late = (Date.now() - app.heard) / 1000;
  const isLate = state === "live" && late > LATE;
  const word = isLate ? `nothing new for ${span(late)}` : state;
  const rights = view?.rights ? `Rights: ${view.rights.join(", ") || "none"}` : "No tokens are set: this machine may do all";
  return [
    h("span", { class: `state is-${state === "live" && !isLate ? "up" : "failing"}` }, icon(state === "live" && !isLate ? "up" : "warn"), word),
    view ? h("span", { class: "dim self" }, "by ", name(view.name, 24), ` ${cut(view.version, 16)}`) : null,
    view?.token ? h("span", { class: "badge is-plain", title: rights }, icon("key"), name(view.token, 24)) : null,
    stream.hasToken ? button("Forget token", () => stream.lock("The token is forgotten."), { class: "quiet" }) : null,
  ];
}

/** What is wrong with what is shown. @returns {Child} */
function banner() {
  const view = viewOf(app.fleet), { state, why, since, retryAt } = stream.link;
  if (state === "lost" && Date.now() - since > PATIENT) {
    const shown = app.heard ? ` What is shown is of ${clock(app.heard / 1000)}.` : "";
    return h("div", { key: "lost", class: "alert is-error" }, icon("cross"),
      h("span", null, `No connection to ${location.host} (${cut(why, 120)}).${shown} Next try in ${span((retryAt - Date.now()) / 1000)}. `,
        elsewhere()), button("Try now", () => stream.restart()));
  }
  if (view?.alone && state === "live") {
    const because = view.alone_because || (view.redis.up ? "it hears no others" : "Redis does not answer");
    return h("div", { key: "alone", class: "alert is-warning" }, icon("warn"), h("span", null, `Only what this slb sees is shown: ${cut(because, 200)}.`,
      view.redis.up ? null : " Traffic goes on by the routes that were known; changes have to wait."));
  }
  return null;
}

/** Where else the fleet can be seen: to other addresses the page itself may not speak. @returns {Child} */
function elsewhere() {
  const self = viewOf(app.fleet)?.id;
  const others = new Map([...app.fleet.instances].filter(([id, each]) =>
    id !== self && each.api && each.api !== location.host).map(([, each]) => [each.api, each.group]));
  const urls = [...others].flatMap(([api, of]) => {
    const url = URL.parse?.(`${location.protocol}//${api}/`);
    return url && url.host === api ? [h("a", { key: api, href: url.href, rel: "noopener noreferrer" }, name(of, 32))] : [];
  });
  return urls.length ? ["The fleet's other dashboards: ", urls.slice(0, 12).map((each, i) => [i ? ", " : "", each])] : null;
}

function lock() {
  const unlock = (/** @type {any} */ event) => {
    event.preventDefault();
    const token = String(new FormData(event.target).get("token"));
    event.target.reset();
    stream.unlock(token);
  };
  return h("form", { key: "lock", class: "card lock", onsubmit: unlock },
    h("h2", null, stream.link.state === "locked" ? "This API asks for a token" : "This API refuses"),
    h("p", { class: "fault", role: "alert" }, cut(stream.link.why, 400)),
    h("label", { class: "field" }, h("span", null, "Token"), h("input", { type: "password", name: "token", autocomplete: "off", required: true })),
    h("p", { class: "dim" }, "It is kept in the memory of this page, and is gone when the page is."),
    h("button", { type: "submit", class: "primary" }, "Show the fleet"));
}

/** Without a token nothing of the fleet stays on the page. */
function linked() {
  if (stream.link.state === "locked") {
    [app.fleet, app.fetched, app.toasts] = [empty(), {}, []];
    /** @type {HTMLDialogElement} */ (at("dialog")).close();
  }
  draw();
}

/** @param {boolean} isAll @param {any} data */
function take(isAll, data) {
  if (isAll) app.fleet = empty();
  apply(app.fleet, data);
  app.heard = Date.now();
  const view = viewOf(app.fleet);
  if (view && data.view) app.ahead = view.now - Date.now() / 1000;
  if (isAll) {
    app.fetched = {};
    void load();
    draw();
  } else drawSoon();
}

function navigate() {
  const [, wanted = "", argument = ""] = location.hash.match(/^#\/([a-z]+)(?:\/(.*))?$/) ?? [];
  const isFirst = !app.at.name;
  let decoded = argument;
  try { decoded = decodeURIComponent(argument); } catch { /* typed by hand: as it is */ }
  app.at = { name: Object.hasOwn(VIEWS, wanted) ? wanted : "overview", argument: decoded };
  draw();
  if (!isFirst) requestAnimationFrame(() => at("title").focus({ preventScroll: true }));
}

/** The look is kept in this browser; nothing else is. @param {string} theme */
function wear(theme) {
  document.documentElement.dataset.theme = theme;
  try { localStorage.setItem("slb-theme", theme); } catch { /* not allowed: it holds for this page */ }
  repaint();
  patch(at("theme"), [button(`Theme: ${theme}`, () => wear(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]), { class: "quiet" })]);
  if (app.heard) draw();
}

let theme = "auto";
try { theme = localStorage.getItem("slb-theme") ?? theme; } catch { /* not allowed */ }
app.draw = draw;
app.at.name = "";
open(take, linked);
wear(THEMES.includes(theme) ? theme : "auto");
navigate();
addEventListener("hashchange", navigate);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { repaint(); draw(); });
setInterval(() => {
  follow();
  if (!document.hidden) draw(); // times that pass
}, 1000);
