"use strict";
// Keeps the page up to date: times run, changes appear as they happen, and the
// parts that show records are fetched again. Without it the page still works.
(() => {
  const body = document.body;
  let ahead = Number(body.dataset.now) - Date.now(); // the store's clock, of this browser's

  // short is a duration for people, as the server writes it.
  const short = (ms) => {
    const s = Math.floor(ms / 1000);
    const two = (n, unit, m, lesser) => (m ? `${n}${unit}${m}${lesser}` : `${n}${unit}`);
    if (ms < 1000) return `${Math.floor(ms)}ms`;
    if (s < 10) return `${(Math.floor(ms / 100) / 10).toFixed(1)}s`;
    if (s < 60) return `${s}s`;
    if (s < 3600) return two(Math.floor(s / 60), "m", s % 60, "s");
    if (s < 86400) return two(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "m");
    return two(Math.floor(s / 86400), "d", Math.floor((s % 86400) / 3600), "h");
  };

  const tick = () => {
    const now = Date.now() + ahead;
    for (const t of document.querySelectorAll("time[data-since]")) t.textContent = short(Math.max(0, now - t.dataset.since));
    for (const t of document.querySelectorAll("time[data-until]")) t.textContent = short(Math.max(0, t.dataset.until - now));
    for (const m of document.querySelectorAll("meter[data-until]")) m.value = Math.max(0, m.dataset.until - now);
  };

  const link = document.getElementById("link");
  let lost = "";
  const say = (what) => {
    lost = what;
    link.hidden = false;
    link.textContent = what || "live";
    link.classList.toggle("lost", what !== "");
    body.classList.toggle("lost-page", what !== "");
  };

  // refresh fetches the page again, and swaps its parts. It leaves forms alone,
  // and a part in which somebody is selecting text. If the server takes long,
  // it asks more rarely.
  let fetching = false, fetched = Date.now(), took = 0, timer = 0, due = Infinity;
  const refreshIn = (ms) => {
    const at = Date.now() + Math.max(ms, 5 * took);
    if (at >= due) return;
    due = at;
    clearTimeout(timer);
    timer = setTimeout(refresh, at - Date.now());
  };
  const refresh = () => {
    if (fetching) return;
    due = Infinity;
    if (document.hidden) { refreshIn(5000); return; }
    fetching = true;
    const begun = Date.now();
    const get = new XMLHttpRequest();
    get.open("GET", location.href);
    get.responseType = "document";
    get.timeout = 15000;
    get.onloadend = () => {
      fetching = false;
      took = Date.now() - begun;
      const next = get.status === 200 && get.response;
      if (next && new URL(get.responseURL).pathname !== location.pathname) {
        location.reload(); // signed out
        return;
      }
      if (!next || !next.body.hasAttribute("data-live")) {
        say(`not up to date: from ${short(Date.now() - fetched)} ago`);
      } else {
        fetched = Date.now();
        ahead = Number(next.body.dataset.now) - Date.now();
        for (const part of document.querySelectorAll("[data-part]")) swap(part, next);
        tick();
        if (!broken) say("");
      }
      refreshIn(touched ? 100 : 5000);
      touched = false;
    };
    get.send();
  };

  const swap = (part, next) => {
    const fresh = next.querySelector(`[data-part="${part.dataset.part}"]`);
    const chosen = getSelection();
    if (!fresh || (!chosen.isCollapsed && chosen.containsNode(part, true))) return;
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    part.replaceWith(document.adoptNode(fresh));
    if (focused) {
      for (const a of fresh.querySelectorAll("a")) if (a.getAttribute("href") === focused) { a.focus(); break; }
    }
  };

  // plain shows text of others: characters that cannot be printed become escapes.
  const plain = (s) => s.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

  const sentence = (c) => {
    const who = plain(c.owner || "nobody");
    const by = c.actor ? `, by ${plain(c.actor)}: “${plain(c.note || "")}”` : "";
    const from = c.from ? ` from ${plain(c.from)}` : "";
    switch (c.change) {
      case "granted": return `${who} got it (cause: ${plain(c.cause || "")})`;
      case "taken_over": return `${who} took it${from}${by}`;
      case "reserved": return `reserved for ${who}${from && ", taken" + from}${by}`;
      case "revoked": return `taken${from}${by}`;
      case "released": return `${who} gave it back`;
      case "failed": return `${who} gave it back after a failure`;
      case "expired": return `${who} was not heard from in time`;
    }
    return `${plain(c.owner || "an unknown owner")}: ${plain(c.act || "")} ${plain(c.code || "")}${c.target ? " at " + plain(c.target) : ""}`;
  };

  const log = document.getElementById("changes");
  const tell = (c) => {
    if (!log) return;
    document.getElementById("nothing")?.remove();
    const item = document.createElement("li");
    const head = document.createElement("p");
    const badge = document.createElement("span");
    badge.className = `badge ${plain(c.change)}`;
    badge.textContent = plain(c.change).replace("_", " ");
    const key = document.createElement("a");
    key.href = `/ui/key?key=${encodeURIComponent(c.key)}`;
    const name = document.createElement("bdi");
    name.textContent = plain(c.key);
    key.append(name);
    head.append(badge, " ", key);
    const detail = document.createElement("p");
    detail.className = "detail";
    detail.textContent = sentence(c) + " · ";
    const when = document.createElement("time");
    when.dataset.since = Date.parse(c.time);
    detail.append(when, " ago");
    item.append(head, detail);
    log.prepend(item);
    while (log.children.length > 30) log.lastChild.remove();
    tick();
  };

  let broken = false, touched = false;
  const refreshSoon = () => {
    if (fetching) touched = true;
    else refreshIn(100);
  };
  // listen opens the stream of changes. A hidden page closes it: a browser opens
  // only six connections to a server, for all of its pages together.
  let events = null, retry = 0, hidden = 0;
  const listen = () => {
    clearTimeout(retry);
    events?.close();
    events = null;
    if (document.hidden) {
      hidden = hidden || Date.now();
      return;
    }
    if (hidden && log && !document.getElementById("nothing")) {
      const gap = document.createElement("li");
      gap.className = "hint";
      gap.textContent = `Changes of ${short(Date.now() - hidden)} are not here: this page was hidden.`;
      log.prepend(gap);
    }
    hidden = 0;
    events = new EventSource("/ui/events?prefix=" + encodeURIComponent(log?.dataset.prefix || ""));
    events.onopen = () => { if (broken) refreshSoon(); broken = false; say(""); };
    events.onerror = () => {
      broken = true;
      say("not connected; trying again");
      if (events.readyState === EventSource.CLOSED) retry = setTimeout(listen, 5000);
    };
    for (const kind of ["transfer", "end", "refusal"]) {
      events.addEventListener(kind, (e) => { tell(JSON.parse(e.data)); refreshSoon(); });
    }
    events.addEventListener("missed", refreshSoon);
  };

  document.addEventListener("keydown", (e) => {
    const filter = document.getElementById("prefix");
    if (e.key === "/" && filter && !/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) {
      e.preventDefault();
      filter.focus();
      filter.select();
    }
  });
  document.getElementById("show")?.addEventListener("change", (e) => e.target.form.submit());

  if (body.hasAttribute("data-live")) {
    setInterval(tick, 1000);
    refreshIn(5000);
    document.addEventListener("visibilitychange", () => { listen(); refreshSoon(); });
    listen();
    tick();
  }
})();
