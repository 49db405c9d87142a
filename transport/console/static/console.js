// The module of the console. It exchanges a one-time code or a login for a token, fetches pages and builds
// them from trees. It has no HTML sink: all texts become text nodes.

const tokenKey = "gatekit-console-token";
const scopeKey = "gatekit-console-scope";
const userKey = "gatekit-console-user"; // the principal who logged in; "" without a login
const maxRows = 2000; // live rows in the page
const maxKnown = 10_000; // keys of rows that were shown, to leave out duplicates
const svgNamespace = "http://www.w3.org/2000/svg";
const svgNames = new Set(["svg", "g", "line", "path", "polyline", "polygon", "rect", "circle",
  "text", "tspan", "desc"]);
const forbidden = /^(script|style|link|meta|base|iframe|frame|object|embed|template)$/;

const main = document.getElementById("page");
const status = document.getElementById("status");
const loginTemplate = document.getElementById("login");

let shown = ""; // the fragment of the page that is shown
let stream = null; // AbortController of the live stream
let refreshTimer = 0;

class LoggedOut extends Error {}

// api sends a request with the token.
async function api(path, options = {}) {
  const token = sessionStorage.getItem(tokenKey);
  if (!token) throw new LoggedOut();
  const response = await fetch("api/" + path, {
    ...options,
    headers: { ...options.headers, Authorization: "Bearer " + token },
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
  });
  if (response.status === 401) throw new LoggedOut();
  if (!response.ok) throw new Error((await response.text()).trim());
  return response;
}

// build adds the nodes of a tree to an element.
function build(parent, nodes) {
  for (const node of nodes) {
    if (typeof node === "string") {
      parent.append(document.createTextNode(node));
      continue;
    }
    const [name, attributes, ...children] = node;
    if (forbidden.test(name)) throw new Error("the page has the element " + name);
    const isSVG = svgNames.has(name) && (name === "svg" || parent.namespaceURI === svgNamespace);
    const element = isSVG
      ? document.createElementNS(svgNamespace, name)
      : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (/^on|^style$|^src/i.test(key)) throw new Error("the page has the attribute " + key);
      element.setAttribute(key, value);
    }
    build(element, children);
    parent.append(element);
  }
}

function make(name, text, attributes = {}) {
  const element = document.createElement(name);
  element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

let lastSaid = 0;
let sayTimer = 0;

// say shows a text in the live region, at most once in two seconds.
function say(text, isError = false) {
  clearTimeout(sayTimer);
  const wait = Math.max(0, lastSaid + 2000 - Date.now());
  sayTimer = setTimeout(() => {
    lastSaid = Date.now();
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("failed", isError);
  }, isError ? 0 : wait);
}

// showLoggedOut forgets the token and shows how to log in.
function showLoggedOut() {
  endStream();
  clearTimeout(refreshTimer);
  for (const key of [tokenKey, scopeKey, userKey]) sessionStorage.removeItem(key);
  document.body.classList.add("logged-out");
  main.replaceChildren(loginTemplate.content.cloneNode(true));
  document.title = "Gatekit console";
  say("");
}

function route() {
  const fragment = location.hash.slice(1);
  const at = fragment.indexOf("?");
  const first = document.querySelector("nav a")?.dataset.page ?? "";
  const name = (at < 0 ? fragment : fragment.slice(0, at)) || first;
  return { name, query: new URLSearchParams(at < 0 ? "" : fragment.slice(at + 1)) };
}

// focusedKey returns what identifies the focused element after the page is built again.
function focusedKey() {
  const focused = document.activeElement;
  if (!focused || !main.contains(focused)) return null;
  return { id: focused.id, key: focused.closest("[data-key]")?.dataset.key,
    start: focused.selectionStart, end: focused.selectionEnd, value: focused.value };
}

function restoreFocus(was) {
  if (!was) return;
  const found = (was.id && document.getElementById(was.id)) ||
    (was.key && main.querySelector(`[data-key="${CSS.escape(was.key)}"]`));
  if (!found) return;
  found.focus({ preventScroll: true });
  if (was.id && was.start != null && "setSelectionRange" in found && found.type !== "number") {
    found.value = was.value;
    found.setSelectionRange(was.start, was.end);
  }
}

// show fetches the page of the fragment. With isRefresh, it keeps the focus and says nothing.
async function show(isRefresh = false) {
  const { name, query } = route();
  const fragment = location.hash;
  clearTimeout(refreshTimer);
  if (!isRefresh) endStream();
  let reply;
  try {
    reply = await (await api(`page/${encodeURIComponent(name)}?${query}`)).json();
  } catch (error) {
    if (error instanceof LoggedOut) return showLoggedOut();
    if (isRefresh) {
      say("Gatekit does not answer; trying again.", true);
      refreshTimer = setTimeout(() => show(true), 5000);
      return;
    }
    reply = { title: "Error", nodes: [], error: error.message };
  }
  if (location.hash !== fragment) return; // the user has moved on
  if (isRefresh && isEditing()) {
    refreshTimer = setTimeout(() => show(true), reply.refresh || 5000);
    return;
  }
  const holder = document.createDocumentFragment();
  if (reply.error) {
    build(holder, [["h1", {}, reply.title], ["p", { class: "failed", role: "alert" },
      reply.error]]);
  } else {
    build(holder, reply.nodes);
  }
  const was = isRefresh ? focusedKey() : null;
  main.replaceChildren(holder);
  if (isRefresh) restoreFocus(was);
  else {
    scrollTo(0, 0);
    if (shown !== "" && shown.split("?")[0] !== fragment.split("?")[0]) {
      main.focus({ preventScroll: true });
    }
    say("");
  }
  shown = fragment || "#" + name;
  document.title = reply.title + " – Gatekit";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (reply.live) follow(name, query);
  if (reply.refresh > 0) {
    const again = () => {
      if (document.hidden) refreshTimer = setTimeout(again, 1000);
      else show(true);
    };
    refreshTimer = setTimeout(again, reply.refresh);
  }
}

// isEditing reports whether a form of the page is being filled in.
function isEditing() {
  const focused = document.activeElement;
  return main.contains(focused) && focused.matches("input:not([type=hidden]), textarea, select") &&
    focused.value !== (focused.defaultValue ?? focused.value);
}

// --- Live rows ---

function endStream() {
  stream?.abort();
  stream = null;
}

// follow shows the live rows of a page until another page is shown.
async function follow(name, query) {
  endStream();
  const control = new AbortController();
  stream = control;
  const list = document.getElementById("live");
  if (!list) return;
  const rows = new LiveRows(list);
  let after = list.dataset.after ?? "";
  for (let delay = 1000; !control.signal.aborted; delay = Math.min(delay * 2, 15_000)) {
    try {
      const asked = new URLSearchParams(query);
      asked.set("after", after);
      const response = await api(`live/${encodeURIComponent(name)}?${asked}`,
        { signal: control.signal });
      rows.state("live");
      for await (const line of lines(response.body)) {
        delay = 1000;
        if (line.error) throw new Error(line.error);
        if (line.after) after = line.after;
        rows.add(line.nodes ?? [], line.omitted ?? 0);
      }
    } catch (error) {
      if (control.signal.aborted) return;
      if (error instanceof LoggedOut) return showLoggedOut();
      rows.state("interrupted");
    }
    await new Promise((done) => {
      const timer = setTimeout(done, delay);
      control.signal.addEventListener("abort", () => { clearTimeout(timer); done(); });
    });
  }
}

// lines parses a stream of JSON lines.
async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const whole = rest.split("\n");
    rest = whole.pop();
    for (const line of whole) yield JSON.parse(line);
  }
}

// LiveRows adds rows to a list, newest first. It holds rows back while the pointer or the focus is
// in the list.
class LiveRows {
  constructor(list) {
    this.list = list;
    this.known = new Set([...list.querySelectorAll("[data-key]")].map((r) => r.dataset.key));
    this.held = []; // nodes of rows that are not shown yet, newest first
    this.omitted = 0;
    this.hovered = false;
    this.text = "live";
    list.addEventListener("pointerenter", () => { this.hovered = true; });
    list.addEventListener("pointerleave", () => { this.hovered = false; this.show(); });
    list.addEventListener("focusout", () => setTimeout(() => this.show()));
  }

  get paused() { return this.hovered || this.list.contains(document.activeElement); }

  state(text) { this.text = text; this.report(); }

  add(nodes, omitted) {
    this.omitted += omitted;
    const fresh = nodes.filter((n) => !this.known.has(n[1]["data-key"]));
    for (const node of nodes) if (!fresh.includes(node)) this.replaceOpen(node);
    for (const node of fresh) this.known.add(node[1]["data-key"]);
    while (this.known.size > maxKnown) this.known.delete(this.known.values().next().value);
    this.held = fresh.concat(this.held);
    this.held.length = Math.min(this.held.length, maxRows);
    if (this.paused) this.report();
    else this.show();
  }

  // replaceOpen replaces the row of a call that had not ended when it was shown.
  replaceOpen(node) {
    const row = this.list.querySelector(`[data-open][data-key="${CSS.escape(node[1]["data-key"])}"]`);
    if (!row || row.contains(document.activeElement)) return;
    const holder = document.createDocumentFragment();
    build(holder, [node]);
    row.replaceWith(holder);
  }

  show() {
    if (this.paused) return;
    if (this.held.length > 0) {
      const holder = document.createDocumentFragment();
      build(holder, this.held);
      this.held = [];
      this.list.prepend(holder);
      while (this.list.childElementCount > maxRows) this.list.lastElementChild.remove();
      document.getElementById("empty")?.setAttribute("hidden", "");
    }
    this.report();
  }

  report() {
    const parts = [this.text === "live" && this.paused ? "paused" : this.text];
    if (this.held.length > 0) parts.push(`${this.held.length} new`);
    if (this.omitted > 0) {
      parts.push(`${this.omitted.toLocaleString("en")} records left out, there were too many`);
    }
    const state = document.getElementById("live-state");
    const text = parts.join(", ");
    if (state && state.textContent !== text) {
      state.textContent = text;
      state.className = this.text === "live" ? "" : "failed";
    }
    if (this.text !== "live") say("The connection to Gatekit is interrupted.");
    else if (status.textContent.includes("interrupted")) say("");
  }
}

// --- Badges ---

async function showBadges() {
  if (document.hidden || document.body.classList.contains("logged-out")) return;
  try {
    const badges = await (await api("badges")).json();
    for (const [name, count] of Object.entries(badges)) {
      const badge = document.querySelector(`nav a[data-page="${CSS.escape(name)}"] .badge`);
      if (!badge) continue;
      badge.textContent = count > 0 ? String(count) : "";
      badge.hidden = count === 0;
    }
    const total = Object.values(badges).reduce((a, b) => a + b, 0);
    document.title = document.title.replace(/^\(\d+\) /, "");
    if (total > 0) document.title = `(${total}) ${document.title}`;
  } catch (error) {
    if (error instanceof LoggedOut) showLoggedOut();
  }
}

// --- Forms and keys ---

document.addEventListener("submit", async (event) => {
  const form = event.target;
  event.preventDefault();
  const fields = new URLSearchParams();
  for (const [key, value] of new FormData(form)) if (value !== "") fields.append(key, value);
  if (form.dataset.query != null) {
    const { name } = route();
    const next = `#${name}${fields.size > 0 ? "?" + fields : ""}`;
    if (next === location.hash) show();
    else location.hash = next;
    return;
  }
  const action = form.dataset.action;
  if (!action || form.dataset.confirm && !confirm(form.dataset.confirm)) return;
  const buttons = form.querySelectorAll("button");
  for (const button of buttons) button.disabled = true;
  try {
    const { name } = route();
    const response = await api(`do/${encodeURIComponent(name)}/${encodeURIComponent(action)}`, {
      method: "POST", body: fields,
    });
    const reply = await response.json();
    await show(true);
    say(reply.message, reply.failed);
    showBadges();
  } catch (error) {
    if (error instanceof LoggedOut) return showLoggedOut();
    say(error.message, true);
  } finally {
    for (const button of buttons) button.disabled = false;
  }
});

function openRow(row) { location.hash = row.dataset.href.slice(1); }

main.addEventListener("click", (event) => {
  const row = event.target.closest("[data-href]");
  const inner = event.target.closest("a, button, input, label, summary");
  if (row && !inner && getSelection().isCollapsed) openRow(row);
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isField = event.target.matches?.("input, textarea, select");
  if (event.key === "Escape" && main.contains(event.target)) return event.target.blur();
  if (isField) return;
  const rows = [...main.querySelectorAll("[data-href]")];
  const at = rows.indexOf(event.target.closest?.("[data-href]"));
  switch (event.key) {
    case "j": case "k": {
      const next = rows[at < 0 ? 0 : at + (event.key === "j" ? 1 : -1)];
      if (!next) return;
      if (!next.hasAttribute("tabindex")) next.tabIndex = -1;
      next.focus();
      next.scrollIntoView({ block: "nearest" });
      break;
    }
    case "Enter":
      if (at < 0 || event.target !== rows[at]) return;
      openRow(rows[at]);
      break;
    case "/": {
      const filter = document.getElementById("filter");
      if (!filter) return;
      filter.focus();
      filter.select();
      break;
    }
    case "?":
      document.getElementById("keys")?.toggleAttribute("open");
      break;
    default:
      return;
  }
  event.preventDefault();
});

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

addEventListener("hashchange", () => start());
document.addEventListener("visibilitychange", () => showBadges());

document.getElementById("log-out").addEventListener("click", async () => {
  try {
    await api("end", { method: "POST" });
  } catch { /* the session has ended, or Gatekit has */ }
  showLoggedOut();
});

// logIn exchanges the code, or the cookie of a finished login, for a token. It first removes the
// code from the address bar and the history.
async function logIn(code) {
  history.replaceState(null, "", location.pathname);
  const response = await fetch("api/session", { method: "POST", cache: "no-store",
    credentials: code ? "omit" : "same-origin", redirect: "error",
    body: new URLSearchParams(code ? { code } : {}) });
  if (!response.ok) throw new Error((await response.text()).trim());
  const reply = await response.json();
  sessionStorage.setItem(tokenKey, reply.token);
  sessionStorage.setItem(scopeKey, reply.scope);
  sessionStorage.setItem(userKey, reply.user);
}

async function start() {
  if (loginTemplate.dataset.problem != null) { // this is the answer to a login that failed
    history.replaceState(null, "", "./");
    delete loginTemplate.dataset.problem;
    showLoggedOut();
    return;
  }
  const login = /^#(?:login|([A-Z2-7]{26}))$/.exec(location.hash);
  if (login) {
    try {
      await logIn(login[1]);
    } catch (error) {
      showLoggedOut();
      main.append(make("p", error.message, { class: "failed", role: "alert" }));
      return;
    }
  }
  document.body.classList.remove("logged-out");
  document.getElementById("scope").textContent = [sessionStorage.getItem(userKey),
    sessionStorage.getItem(scopeKey) === "approve" ? "may approve" : "read only",
  ].filter(Boolean).join(" · ");
  await show();
  showBadges();
}

setInterval(showBadges, 15_000);
start();
