/* The page's own script. It adds what Gradio's front end does not know of:
 *   1. which tab and which language a request comes from,
 *   2. an input method's Enter, which must never send,
 *   3. the state of the conversation (idle, waiting, writing) as an attribute the style sheet reads,
 *   4. the place in line while a message waits in Gradio's queue,
 *   5. a lost connection: what the page says then, and how it comes back,
 *   6. scrolling that follows the text until the reader scrolls away.
 * It talks to the server through the same events as the rest of the page and to no other host. */
(() => {
  "use strict";
  const root = document.documentElement;
  if (root.dataset.chat) return; // the head can be mounted twice
  const config = JSON.parse(document.querySelector('meta[name="office-chat"]').content);
  const byId = (id) => document.getElementById(id);
  const all = (css) => Array.from(document.querySelectorAll(css));
  const first = (css) => document.querySelector(css);
  const box = () => first("#box textarea");

  const nothing = () => {};
  const watch = (node, react) => new MutationObserver(react).observe(node, { childList: true, subtree: true });
  const at = (event, css) => event.target.closest?.(css); // the document itself has no `closest`
  const on = (name, react, options) => window.addEventListener(name, react, options);
  const element = (tag, properties, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    if (tag === "button") made.type = "button";
    made.append(...children);
    return made;
  };
  const aria = (node, name, value) => node.setAttribute("aria-" + name, value);
  // A line that a screen reader says when it changes.
  const status = (id) => {
    const made = element("div", { id });
    made.setAttribute("role", "status");
    return made;
  };
  const swallow = (event) => { event.preventDefault(); event.stopImmediatePropagation(); };
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

  // ---- storage that may be forbidden -----------------------------------------------------------------------
  const storage = (name) => ({
    get: (key) => { try { return window[name].getItem("office-chat-" + key); } catch { return null; } },
    set: (key, value) => {
      try { window[name].setItem("office-chat-" + key, value); } catch { /* it lasts as long as this page, then */ }
    },
  });
  const inTab = storage("sessionStorage");
  const inBrowser = storage("localStorage");

  // A grammar that cannot be fetched, or fails: the highlighter goes on without colours, where it would draw nothing.
  on("vite:preloadError", (event) => {
    if (`${event.payload?.stack} ${event.payload?.message}`.includes("/prism-")) event.preventDefault();
  });

  // ---- 1. tab and language ---------------------------------------------------------------------------------
  // crypto.randomUUID is missing on a page that is no secure context, which http://<LAN address> is not.
  const randomId = () =>
    Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  let tab = inTab.get("tab");
  if (!/^[\w-]{16,64}$/.test(tab || "")) {
    tab = randomId();
    inTab.set("tab", tab);
  }
  // Whether another page has this conversation. A duplicated tab copies sessionStorage: the one that was there first
  // answers, the newcomer takes a new id.
  const me = randomId();
  const tabs = new BroadcastChannel("office-chat-tabs");
  let asked = "";
  let taken = nothing;
  tabs.onmessage = ({ data }) => {
    if (data.to === me && data.tab === asked) taken(true);
    else if (!data.to && data.me !== me && data.tab === tab) tabs.postMessage({ tab, to: data.me });
  };
  const isTaken = (id) => {
    asked = id;
    tabs.postMessage({ tab: id, me });
    return Promise.race([new Promise((resolve) => { taken = resolve; }), pause(150)]);
  };
  isTaken(tab).then((yes) => {
    if (!yes) return;
    chat.tab = randomId();
    location.reload();
  });

  const chosen = inBrowser.get("language");
  const browsers = /^zh\b/i.test(navigator.language) ? "zh" : "en";
  let language = chosen || (config.language === "auto" ? browsers : config.language);
  if (!config.words[language]) language = config.built;
  const word = (key, values = {}) =>
    config.words[language][key].replace(/\{(\w+)\}/g, (_, name) => values[name]);
  // What turns.js and history.js need of this file. history.js hangs on it: asking (a question is about to go; may add
  // headers), over (nothing is under way any more), restored (the page was loaded), kept (what the browser had of a
  // conversation is on the page), relabelled and forgotten.
  const chat = window.officeChat = {
    config, word, inTab, inBrowser, randomId, box, byId, all, root, pause, isTaken, at, swallow, on, watch, element, aria, status,
    place: () => get("place"),
    get tab() { return tab; },
    set tab(id) { tab = id; inTab.set("tab", id); },
    get state() { return state; },
    // The reader's own way to write times and numbers, where the page speaks their language.
    get locale() { return navigator.language.startsWith(language) ? navigator.language : language; },
    fillBox: (text) => fillBox(text),
    tell: (text) => { notice = text; say(""); },
    // Resolves once nothing is under way any more.
    stopped: async () => {
      if (state !== "idle") byId("stop").click();
      while (state !== "idle") await pause(30);
    },
  };
  const showLanguage = () => {
    root.lang = language === "zh" ? "zh-CN" : "en";
    document.title = word("title");
  };

  // ---- requests: headers on all of ours, and a look at the few that matter here ------------------------------
  const plainFetch = window.fetch.bind(window);
  // The handler's name of an event's request, "" for every other request.
  const eventOf = (url, init) => {
    if (!/\/(queue\/join|run\/\w+)$/.test(url.pathname) || !init || typeof init.body !== "string") return "";
    const { fn_index } = JSON.parse(init.body);
    const dependency = window.gradio_config.dependencies.find(({ id }) => id === fn_index);
    return dependency ? dependency.api_name : "";
  };

  const ENDINGS = new Set(["commit_ask", "commit_again", "commit_go_on", "commit_attach", "stop", "new_chat", "forget"]);
  let nAsked = 0;
  let nEnding = 0;
  window.fetch = async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input, document.baseURI);
    if (url.origin !== location.origin) return plainFetch(input, init);
    const headers = new Headers((init && init.headers) || (input instanceof Request ? input.headers : undefined));
    if (!headers.has("X-Tab")) headers.set("X-Tab", tab);
    headers.set("X-Lang", language);
    const event = eventOf(url, init);
    const isQuestion = ["ask", "again", "go_on"].includes(event);
    if (isQuestion) {
      joining(event);
      await chat.asking(event, headers);
    }
    const isEnding = ENDINGS.has(event);
    const asked = nAsked;
    let response;
    if (isEnding) nEnding += 1;
    try {
      response = await plainFetch(input, { ...init, headers });
    } catch (error) {
      if (isQuestion) settled();
      if (event && !isLeaving) lost("page_lost");
      throw error;
    } finally {
      if (isEnding) nEnding -= 1;
    }
    if (event) lastContact = Date.now();
    // The login is over, or the passcode is a new one. A reload leads to the login page and back, the draft is kept.
    if (response.status === 401 && !isLeaving) location.reload();
    // Gradio's own words for this are hidden. A refused question (422) comes with a sentence.
    if (event && !response.ok && response.status !== 422) chat.tell(word("page_failed"));
    if (isQuestion) response.ok ? joined() : settled();
    if (isQuestion && response.status === 422) refused();
    // The answer is in the page once Gradio has read the response and drawn it.
    // What was under way before the latest question says nothing about it.
    if (isEnding && asked === nAsked) setTimeout(settled, 0);
    if (event === "restore") restored();
    if (event === "show_kept") setTimeout(chat.kept, 30);
    if (event === "relabel") setTimeout(() => { reveal(); chat.relabelled(); }, 30);
    if (event === "forget") chat.forgotten();
    return response;
  };

  // Who logs out may leave the PC to somebody else: nothing of this person stays in the browser.
  const logOut = async () => {
    isLeaving = true;
    try {
      await chat.drop(tab);
      await plainFetch("logout", { method: "POST" });
      chat.forgotten();
      sessionStorage.clear();
      location.assign("login");
    } catch {
      isLeaving = false;
      lost("page_lost");
    }
  };

  // ---- 2. keys -----------------------------------------------------------------------------------------------
  // While an input method composes, the keys belong to it, in every field. Safari ends the composition before the key
  // arrives, so that only keyCode 229 tells. Captured at the window: Gradio listens on the text area itself.
  const keyed = (event) => {
    if (event.isComposing || event.keyCode === 229) event.stopImmediatePropagation();
    else if (event.key === "Enter" && event.target === box() && !event.shiftKey && !maySend()) swallow(event);
  };
  on("keydown", keyed, true);
  on("keypress", keyed, true);

  // ---- 3. the state ------------------------------------------------------------------------------------------
  // idle; waiting: sent, in Gradio's queue; writing: the live component shows question and answer.
  // `run` is what was pressed last. During "again" and "go_on" the style sheet hides the turn that is written anew.
  let state = "idle";
  let lastContact = Date.now();
  const isLive = () => !!first("#live .said");
  const maySend = () => state === "idle" && !isLost && !!box()?.value.trim();

  const setState = (next) => {
    if (next === state) return;
    state = next;
    root.dataset.chat = next;
    const area = box();
    if (area) area.readOnly = next === "waiting";
    say("");
    if (next === "idle" && byId("talk")) holdHeight();
    isOver();
    showButtons();
  };
  let over = 0;
  const isOver = () => {
    clearTimeout(over);
    over = setTimeout(() => { if (state === "idle" && !isLost) chat.over(); }, 50);
  };
  const showButtons = () => {
    const send = byId("send");
    if (send) send.disabled = !maySend();
    const rows = all("#conversation .message-row");
    root.dataset.empty = rows.length || isLive() ? "no" : "yes";
    const last = rows[rows.length - 1];
    root.dataset.more = last && last.querySelector(".note.more") ? "yes" : "no";
  };
  const joining = (run) => {
    nAsked += 1;
    notice = "";
    root.dataset.run = run;
    lookedAt = Infinity; // not before the line has it
    following = true;
    setState("waiting");
  };
  const joined = () => {
    bePatient(false);
    nMissed = 0;
    lookedAt = Date.now() - 700;
  };
  // An event of the queue, or its refusal, is over: what the live component shows decides.
  const settled = () => requestAnimationFrame(() => {
    if (isLost) return;
    if (state === "waiting" && !isLive()) lookedAt = 0; // back without an answer: perhaps because the program ends
    setState(isLive() ? "writing" : "idle");
    showButtons();
    if (state === "idle") delete root.dataset.run;
    isOver();
  });
  const liveChanged = () => {
    if (isLost) return;
    if (isLive()) {
      if (state === "waiting" && root.dataset.run === "ask") fillBox("");
      const isNews = state === "idle"; // after a reload: an answer nobody on this page has asked for yet
      setState("writing");
      if (isNews) byId("attach").click();
      measureTalk();
    } else if (state === "writing") {
      setState("idle");
      delete root.dataset.run;
    }
    showButtons();
  };
  const fillBox = (text) => {
    const area = box();
    area.value = text;
    area.dispatchEvent(new Event("input", { bubbles: true })); // Svelte's binding listens to it
  };

  // ---- 4. the place in line ----------------------------------------------------------------------------------
  // What stands above the box. A lost connection is more important than everything else, a notice least.
  let notice = "";
  const say = (text) => {
    text = isLost ? word(isLost) : text || (isPatient ? word("page_waiting_free") : notice);
    const line = byId("place");
    if (line && line.textContent !== text) line.textContent = text;
    root.dataset.inLine = text ? "yes" : "no";
  };
  const get = async (path) => (await window.fetch(path, { signal: AbortSignal.timeout(8000) })).json();
  // The seconds count down by themselves; the server's newer guess counts when it is clearly another one.
  let servedAt = 0;
  const inLine = (n, waitS) => {
    if (!waitS) return word("page_place", { n });
    const fresh = Date.now() + waitS * 1000;
    if (Math.abs(fresh - servedAt) > Math.max(3000, waitS * 200)) servedAt = fresh;
    return word("page_place_wait", { n, s: Math.max(1, Math.round((servedAt - Date.now()) / 1000)) });
  };
  // Refused because every place is taken: the text may wait here until one is free.
  let isPatient = false;
  const bePatient = (isOn, isOffered) => {
    isPatient = isOn;
    root.dataset.patient = isOn ? "yes" : isOffered ? "offered" : "no";
    say("");
  };
  const hasRoom = () => get("room").then(({ free }) => free, nothing);
  const refused = async () => { if (!isPatient) bePatient(false, !(await hasRoom())); };
  const waitForRoom = async () => {
    bePatient(true);
    while (isPatient) {
      await pause(1000 + 2000 * Math.random()); // not all who wait at the same moment
      if (isPatient && maySend() && (await hasRoom())) byId("send").click();
    }
  };

  // ---- 5. a lost connection -----------------------------------------------------------------------------------
  const BACK_EVERY_MS = 2500;
  let isLost = ""; // the key of the sentence
  let isLeaving = false;
  on("pagehide", () => {
    isLeaving = true;
    // The time a conversation is kept for begins when its tab is closed: this is the tab's last sign.
    if (root.dataset.empty === "no") window.fetch("place", { keepalive: true }).catch(nothing);
  });
  on("pageshow", () => { isLeaving = false; });
  const isBack = () => plainFetch("ready", { cache: "no-store", signal: AbortSignal.timeout(8000) })
    .then(({ ok, status }) => ok || status === 401, nothing);
  // The page stops where it is and keeps every word on it. Once the program answers again, a reload shows what there is.
  const lost = async (sentence) => {
    if (isLost) return;
    isLost = sentence;
    const question = first("#live .said");
    if (question && root.dataset.run === "ask") inTab.set("asked", question.textContent);
    state = root.dataset.chat = "idle";
    root.dataset.lost = "yes";
    box().readOnly = false;
    say("");
    showButtons();
    do {
      await pause(BACK_EVERY_MS);
    } while (!(await isBack()));
    location.reload();
  };
  // A question whose answer never reached the conversation goes back into the box, unless something else is there.
  const putBack = () => {
    const question = inTab.get("asked");
    if (!question) return;
    inTab.set("asked", "");
    if (!box().value && !all("#talk .said").some((bubble) => bubble.textContent === question)) fillBox(question);
  };
  // What is looked at: while a question waits, its place; while it is answered, whether it still is, for Gradio's stream
  // can be lost without a sound; while nothing happens, whether the program is still the same. (/room, unlike /place,
  // does not count as a sign that the conversation is in use.) The head of the page follows what the owner changes.
  const EVERY_MS = { waiting: 1000, writing: 3000, idle: 15000 };
  let lookedAt = Date.now();
  let isLooking = false;
  let nMissed = 0;
  const look = async () => {
    if (isLost || isLooking || Date.now() - lookedAt < EVERY_MS[state] || (document.hidden && state === "idle")) return;
    const before = state + nAsked;
    const beganAt = Date.now();
    isLooking = true;
    try {
      const found = await get(state === "idle" ? "room" : "place");
      if (before === state + nAsked && !nEnding) seen(found);
    } catch {
      // Later than its own bound: the whole page was asleep.
      if (before === state + nAsked && !isLeaving && Date.now() - beganAt < 15000) lost("page_lost");
    }
    isLooking = false;
    lookedAt = Date.now();
  };
  const seen = ({ ahead, wait_s, running, closing, run, head }) => {
    if (closing && state !== "writing") return lost("page_closing"); // what is written still gets its own word
    if (state === "idle") {
      // Another model or notice than the head of the page shows.
      if (head !== first("#header [data-head]")?.dataset.head) askHello();
      if (run === config.run || root.dataset.editing === "yes") return;
      inTab.set("news", "yes");
      return location.reload();
    }
    // The answer is over, or nobody waits any more, and nothing has come: the stream to this page is lost.
    nMissed = (state === "waiting" ? ahead !== null : running) ? 0 : nMissed + (state === "writing" ? 3 : 1);
    if (nMissed > 5) return location.reload();
    if (state === "waiting") say(ahead === null ? word("page_joining") : inLine(ahead + 1, wait_s));
  };
  setInterval(look, 250);

  // ---- 6. scrolling ------------------------------------------------------------------------------------------
  const NEAR_PX = 48;
  let following = true;
  let lastTop = 0;
  const page = () => document.scrollingElement;
  const fromBottom = () => page().scrollHeight - window.innerHeight - page().scrollTop;
  const follow = () => { if (following) page().scrollTop = page().scrollHeight; };
  on("scroll", () => {
    const top = page().scrollTop;
    if (fromBottom() < NEAR_PX) following = true;
    else if (top < lastTop - 2) following = false; // the page growing under us never moves it up
    lastTop = top;
    root.dataset.away = following || fromBottom() < NEAR_PX ? "no" : "yes";
  }, { passive: true });

  // When an answer moves from the live component into the conversation, one is emptied a frame before the other has
  // grown. Holding the height keeps the reader where they are.
  let fullHeight = 0;
  let release = 0;
  const measureTalk = () => { fullHeight = byId("talk").offsetHeight; };
  const holdHeight = () => {
    byId("talk").style.minHeight = fullHeight + "px";
    clearTimeout(release);
    release = setTimeout(() => { byId("talk").style.minHeight = ""; }, 400);
  };

  // ---- the language switch, and showing the page once it speaks the right one ---------------------------------
  const reveal = () => { root.dataset.ready = "yes"; };
  let isOurs = false;
  const restored = () => setTimeout(async () => {
    attachTo();
    showLanguage(); // Gradio has written the browser's own
    await chat.restored();
    setTimeout(putBack, 300);
    if (inTab.get("news")) chat.tell(word("page_restarted"));
    inTab.set("news", "");
    if (language === config.built) return reveal();
    isOurs = true;
    byId("language").click();
  }, 0);
  const switched = () => {
    if (isOurs) { isOurs = false; return; }
    language = language === "zh" ? "en" : "zh";
    inBrowser.set("language", language);
    showLanguage();
    if (isLost) say("");
  };

  // ---- Forget me and Log out ask once more, in their own words ---------------------------------------------------
  const isSure = (event, button) => {
    if (button.dataset.sure) return delete button.dataset.sure;
    swallow(event);
    button.dataset.sure = word(`page_${button.id}_sure`);
    setTimeout(() => { delete button.dataset.sure; }, 4000);
  };

  let lastSend = 0;
  on("click", (event) => {
    if (at(event, "#conversation .note.afresh")) return byId("again").click();
    const button = at(event, "button");
    if (!button) return;
    if (button.id === "language") switched();
    if (["forget", "log_out"].includes(button.id) && isSure(event, button) && button.id === "log_out") logOut();
    if (button.id === "newest") { following = true; follow(); }
    if (button.id === "when_free") waitForRoom();
    if (button.id === "not_now") bePatient(false, true);
    // The second click of a double click on Send meets Stop, which has taken its place.
    if (button.id === "stop" && event.isTrusted && Date.now() - lastSend < 500) swallow(event);
    // Gradio knows that an event runs only some milliseconds after the click: a second one would be sent as well.
    if (["send", "again", "go_on"].includes(button.id)) {
      if (state !== "idle" || Date.now() - lastSend < 300) swallow(event);
      else lastSend = Date.now();
    }
  }, true);

  // ---- watching the page -----------------------------------------------------------------------------------
  const PAUSE_MS = 60000;
  let attached = false;
  const attachTo = () => {
    if (attached || !byId("live") || !byId("conversation") || !box()) return;
    attached = true;
    for (const id of ["conversation", "live"]) byId(id).setAttribute("translate", "no");
    watch(byId("live"), liveChanged);
    watch(byId("conversation"), () => {
      // Gradio names a message by its Markdown source and the whole in English; the words themselves are what a screen
      // reader should say.
      for (const named of all("#conversation :is([data-testid], [role=log])")) named.removeAttribute("aria-label");
      showButtons();
    });
    new ResizeObserver(follow).observe(first(".gradio-container") || document.body);
    on("input", (event) => {
      if (event.target !== box()) return;
      showButtons();
      inTab.set("draft", box().value);
      // Somebody is there again: the server looks for events often from now on. The header says if the model is ready.
      if (Date.now() - lastContact > PAUSE_MS) askHello();
    });
    byId("composer").prepend(status("place"));
    setInterval(() => { if (first("#header [data-loading]")) askHello(); }, 2000);
    // What was typed survives a reload: Gradio reloads the page itself when a lost connection is back.
    const draft = inTab.get("draft");
    if (draft && !box().value) fillBox(draft);
    liveChanged();
  };
  const askHello = () => {
    lastContact = Date.now();
    box().dispatchEvent(new FocusEvent("focus"));
  };

  root.dataset.chat = state;
  root.dataset.login = config.login;
  root.dataset.mayWish = config.wishes;
  root.dataset.empty = "yes";
  showLanguage();
  // Gradio writes the title the page was built with once more when it mounts.
  watch(first("title") || document.head, () => { if (document.title !== word("title")) document.title = word("title"); });
  setTimeout(reveal, 3000); // whatever happens, nobody looks at an empty page for longer
})();
