// The page: which view is shown, when it is drawn, how the connection is.

import { app, link, now, stream } from "./app.js";
import { repaint } from "./chart.js";
import { h, icon, patch } from "./dom.js";
import { capital, clock, cut, name, span } from "./format.js";
import { follow, load } from "./history.js";
import { button, none, quiet } from "./parts.js";
import { apply, fleet } from "./state.js";
import { changes } from "./views/changes.js";
import { explain } from "./views/explain.js";
import { instances } from "./views/instances.js";
import { jobs } from "./views/jobs.js";
import { overview } from "./views/overview.js";
import { quota } from "./views/quota.js";
import { route } from "./views/route.js";
import { upstreams } from "./views/upstreams.js";

/** All but `route` are tabs. @type {Record<string, () => Child>} */
const VIEWS = { overview, route, upstreams, instances, jobs, quota, changes, explain };
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
    const focused = document.activeElement, { name: shown, argument } = app.at, isRoute = shown === "route";
    const title = isRoute ? cut(argument) : capital(shown), tabs = Object.keys(VIEWS).filter((each) => each !== "route");
    document.title = `${fleet.alerts.size ? `(${fleet.alerts.size}) ` : ""}${title} · slb`;
    patch(at("tabs"), tabs.map((each) =>
      h("a", { key: each, href: link(each), "aria-current": each === (isRoute ? "overview" : shown) ? "page" : null }, capital(each))));
    patch(at("link"), linkShown());
    patch(at("news"), [banner()]);
    at("title").textContent = title;
    at("title").className = isRoute ? "" : "unseen"; // else the tab says it
    patch(at("view"), [stream.link.isShut ? lock() : !fleet.view.has("self") ? none("Asking this slb …")
      : h("div", { key: `${shown} ${argument}`, class: `view of-${shown}` }, VIEWS[shown]())]);
    patch(at("toasts"), app.toasts.map(({ id, isError, text, undo }) => {
      const gone = () => {
        app.toasts = app.toasts.filter((each) => each.id !== id);
        draw();
      };
      return h("div", { key: String(id), class: isError ? "toast is-bad" : "toast" }, h("span", null, text),
        undo ? button("Undo", () => { gone(); void undo(); }) : null,
        button("", gone, { icon: "cross", class: "quiet", "aria-label": "Close" }));
    }));
    if (focused instanceof HTMLElement && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  });
}

function linkShown() {
  const self = fleet.view.get("self"), { state } = stream.link, late = (Date.now() - app.heard) / 1000;
  const isLate = state === "live" && late > LATE, isWell = state === "live" && !isLate;
  const rights = self?.rights ? `Rights: ${self.rights.join(", ") || "none"}` : "No tokens are set: this machine may do all";
  return [
    h("span", { class: `state is-${isWell ? "up" : "failing"}` }, icon(isWell ? "up" : "warn"), isLate ? `nothing new for ${span(late)}` : state),
    self ? h("span", { class: "dim self" }, "by ", name(self.name, 24), ` ${cut(self.version, 16)}`) : null,
    self?.token ? h("span", { class: "badge is-plain", title: rights }, icon("key"), name(self.token, 24)) : null,
    stream.headers.Authorization ? quiet("Forget token", () => stream.lock("The token is forgotten.")) : null,
  ];
}

/** What is wrong with what is shown. */
function banner() {
  const self = fleet.view.get("self"), { state, why, since, retryAt } = stream.link;
  if (state === "lost" && Date.now() - since > PATIENT) {
    const shown = app.heard ? ` What is shown is of ${clock(app.heard / 1000)}.` : "";
    return h("div", { key: "lost", class: "alert is-error" }, icon("cross"),
      h("span", null, `No connection to ${location.host} (${cut(why, 120)}).${shown} Next try in ${span((retryAt - Date.now()) / 1000)}. `,
        elsewhere()), button("Try now", () => stream.restart()));
  }
  if (!self?.alone || state !== "live") return null;
  const because = self.alone_because || (self.redis.up ? "it hears no others" : "Redis does not answer");
  return h("div", { key: "alone", class: "alert is-warning" }, icon("warn"), h("span", null, `Only what this slb sees is shown: ${cut(because, 200)}.`,
    self.redis.up ? null : " Traffic goes on by the routes that were known; changes have to wait."));
}

/** Where else the fleet can be seen: to other addresses the page itself may not speak. */
function elsewhere() {
  const url = (/** @type {string} */ api) => `${location.protocol}//${api}/`, self = fleet.view.get("self")?.id;
  const others = [...fleet.instances].filter(([id, { api }]) => id !== self && api !== location.host && URL.parse?.(url(api))?.host === api);
  const links = [...new Map(others.map(([, { api, group }]) => [api, group]))].slice(0, 12).map(([api, group], i) =>
    [i ? ", " : "", h("a", { key: api, href: url(api), rel: "noopener noreferrer" }, name(group, 32))]);
  return links.length ? ["The fleet's other dashboards: ", links] : null;
}

function lock() {
  const unlock = (/** @type {any} */ event) => {
    event.preventDefault();
    const token = String(new FormData(event.target).get("token"));
    event.target.reset();
    stream.restart(token.trim());
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
  if (stream.link.isShut) {
    apply({}, true);
    [app.fetched, app.toasts] = [{}, []];
    /** @type {HTMLDialogElement} */ (at("dialog")).close();
  }
  draw();
}

function take(/** @type {boolean} */ isAll, /** @type {FleetChange} */ data) {
  apply(data, isAll);
  app.heard = Date.now();
  app.ahead = (data.view?.self?.now ?? now()) - Date.now() / 1000;
  if (isAll) {
    app.fetched = {};
    void load();
    draw();
  } else {
    soon ||= setTimeout(() => { // what events bring is drawn together
      soon = 0;
      draw();
    }, TOGETHER);
  }
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
  patch(at("theme"), [quiet(`Theme: ${theme}`, () => wear(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]))]);
  if (app.heard) draw();
}

let theme = "auto";
try { theme = localStorage.getItem("slb-theme") ?? theme; } catch { /* not allowed */ }
app.draw = draw;
[stream.onEvent, stream.onLink] = [take, linked];
stream.restart();
wear(THEMES.includes(theme) ? theme : "auto");
navigate();
addEventListener("hashchange", navigate);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { repaint(); draw(); });
setInterval(() => {
  follow();
  if (!document.hidden) draw(); // times that pass
}, 1000);
