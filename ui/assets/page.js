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
  const box = () => document.querySelector("#box textarea");

  const nothing = () => {};
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

  // ---- storage that may be forbidden -----------------------------------------------------------------------
  const stored = (store, key) => {
    try { return window[store].getItem(key); } catch { return null; }
  };
  const store = (storage, key, value) => {
    try { window[storage].setItem(key, value); } catch { /* it lasts as long as this page, then */ }
  };

  // ---- 1. tab and language ---------------------------------------------------------------------------------
  // crypto.randomUUID is missing on a page that is no secure context, which http://<LAN address> is not.
  const randomId = () =>
    Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  let tab = stored("sessionStorage", "office-chat-tab");
  if (!/^[\w-]{16,64}$/.test(tab || "")) {
    tab = randomId();
    store("sessionStorage", "office-chat-tab", tab);
  }
  // Whether another page has this conversation. A duplicated tab copies sessionStorage: the one that was there first
  // answers, the newcomer takes a new id.
  const me = randomId();
  const tabs = "BroadcastChannel" in window ? new BroadcastChannel("office-chat-tabs") : null;
  let asked = "";
  let taken = nothing;
  if (tabs) tabs.onmessage = ({ data }) => {
    if (data.to === me && data.tab === asked) taken(true);
    else if (!data.to && data.me !== me && data.tab === tab) tabs.postMessage({ tab, to: data.me });
  };
  const isTaken = (id) => {
    asked = id;
    if (tabs) tabs.postMessage({ tab: id, me });
    return Promise.race([new Promise((resolve) => { taken = resolve; }), pause(150)]);
  };
  isTaken(tab).then((yes) => {
    if (!yes) return;
    chat.tab = randomId();
    location.reload();
  });

  const chosen = stored("localStorage", "office-chat-language");
  const browsers = /^zh\b/i.test(navigator.language) ? "zh" : "en";
  let language = chosen || (config.language === "auto" ? browsers : config.language);
  if (!config.words[language]) language = config.built;
  const word = (key, values = {}) =>
    config.words[language][key].replace(/\{(\w+)\}/g, (_, name) => values[name]);
  // What turns.js and history.js need of this file, and what they hang on it.
  const chat = window.officeChat = {
    config, word, stored, store, randomId, box, byId, pause, isTaken,
    get tab() { return tab; },
    set tab(id) { tab = id; store("sessionStorage", "office-chat-tab", id); },
    get state() { return state; },
    fillBox: (text) => fillBox(text),
    tell: (text) => { notice = text; say(""); },
    // Resolves once nothing is under way any more.
    stopped: async () => {
      if (state !== "idle") byId("stop").click();
      while (state !== "idle") await pause(30);
    },
    asking: nothing, // a question is about to go; may add headers
    over: nothing, // nothing is under way any more
    restored: nothing, // the page was loaded
    kept: nothing, // what the browser had of a conversation is on the page
    relabelled: nothing,
    forgotten: nothing,
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
    lastContact = Date.now();
    if (response.status === 401) return loggedOut(response);
    if (/\/queue\/data$/.test(url.pathname) && response.body) return watched(response);
    // Gradio's own words for this are hidden. A refused question (422) comes with a sentence.
    if (event && !response.ok && response.status !== 422) say(word("page_failed"));
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

  // The login is over, or the passcode is a new one. A reload leads to the login page and back, the draft is kept.
  const loggedOut = (response) => {
    if (box() && box().value) store("sessionStorage", "office-chat-draft", box().value);
    if (!isLeaving) location.reload();
    return response;
  };
  // Nothing of this person stays in the tab. The conversations in the browser's own storage do: that is what Forget me is for.
  const logOut = async () => {
    isLeaving = true;
    try {
      await plainFetch("logout", { method: "POST" });
      sessionStorage.clear();
      location.assign("login");
    } catch {
      isLeaving = false;
      lost("page_lost");
    }
  };

  // ---- 2. keys -----------------------------------------------------------------------------------------------
  // While an input method composes, Enter belongs to it. Safari ends the composition before the key arrives, so that
  // only keyCode 229 tells. Captured at the window: Gradio listens on the text area itself.
  const keyed = (event) => {
    if (event.key !== "Enter" || event.target !== box()) return;
    if (event.isComposing || event.keyCode === 229) {
      event.stopImmediatePropagation();
    } else if (!event.shiftKey && !maySend()) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
  };
  window.addEventListener("keydown", keyed, true);
  window.addEventListener("keypress", keyed, true);

  // ---- 3. the state ------------------------------------------------------------------------------------------
  // idle; waiting: sent, in Gradio's queue; writing: the live component shows question and answer.
  // `run` is what was pressed last. During "again" and "go_on" the style sheet hides the turn that is written anew.
  let state = "idle";
  let lastContact = Date.now();
  const isLive = () => Boolean(document.querySelector("#live .said"));
  const maySend = () => state === "idle" && !isLost && Boolean(box() && box().value.trim());

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
    const rows = document.querySelectorAll("#conversation .message-row");
    root.dataset.empty = rows.length || isLive() ? "no" : "yes";
    const last = rows[rows.length - 1];
    root.dataset.more = last && last.querySelector(".note.more") ? "yes" : "no";
  };
  const joining = (run) => {
    nAsked += 1;
    notice = "";
    root.dataset.run = run;
    following = true;
    setState("waiting");
  };
  const joined = () => {
    bePatient(false);
    if (state === "waiting") pollPlace();
  };
  // An event of the queue, or its refusal, is over: what the live component shows decides.
  const settled = () => requestAnimationFrame(() => {
    if (isLost) return;
    if (state === "waiting" && !isLive()) askWhetherClosing();
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
  const place = async () => (await window.fetch("place", { signal: AbortSignal.timeout(8000) })).json();
  // A question that waited came back without an answer: perhaps because the program ends.
  const askWhetherClosing = async () => {
    try { if ((await place()).closing) lost("page_closing"); } catch { if (!isLeaving) lost("page_lost"); }
  };
  // The seconds count down by themselves; the server's newer guess counts when it is clearly another one.
  let servedAt = 0;
  const inLine = (n, waitS) => {
    if (!waitS) return word("page_place", { n });
    const fresh = Date.now() + waitS * 1000;
    if (Math.abs(fresh - servedAt) > Math.max(3000, waitS * 200)) servedAt = fresh;
    return word("page_place_wait", { n, s: Math.max(1, Math.round((servedAt - Date.now()) / 1000)) });
  };
  const PLACE_EVERY_MS = 1000;
  const LOST_AFTER = 5;
  const pollPlace = async () => {
    await pause(300);
    for (let nLost = 0; state === "waiting"; ) {
      try {
        const { ahead, wait_s, closing } = await place();
        if (state !== "waiting") return;
        if (closing) return lost("page_closing");
        // Nobody waits any more and nothing has come for seconds: the stream to this page is lost. The answer is not.
        nLost = ahead === null ? nLost + 1 : 0;
        if (nLost > LOST_AFTER) return location.reload();
        say(ahead === null ? word("page_joining") : inLine(ahead + 1, wait_s));
      } catch {
        if (!isLeaving) return lost("page_lost");
      }
      await pause(PLACE_EVERY_MS);
    }
  };

  // Refused because every place is taken: the text may wait here until one is free.
  const FREE_EVERY_MS = 2000;
  let isPatient = false;
  const bePatient = (on, isOffered) => {
    isPatient = on;
    root.dataset.patient = on ? "yes" : isOffered ? "offered" : "no";
    say("");
  };
  const hasRoom = async () => {
    try { return (await (await window.fetch("room")).json()).free; } catch { return false; }
  };
  const refused = async () => { if (!isPatient) bePatient(false, !(await hasRoom())); };
  const waitForRoom = async () => {
    bePatient(true);
    while (isPatient) {
      await pause(FREE_EVERY_MS * (0.5 + Math.random()));
      if (isPatient && maySend() && (await hasRoom())) byId("send").click();
    }
  };

  // ---- 5. a lost connection -----------------------------------------------------------------------------------
  const BACK_EVERY_MS = 2500;
  const ENDED_MS = 1500;
  let isLost = ""; // the key of the sentence
  let isLeaving = false;
  let nStreams = 0;
  window.addEventListener("pagehide", () => {
    isLeaving = true;
    // The time a conversation is kept for begins when its tab is closed: this is the tab's last sign.
    if (root.dataset.empty === "no") plainFetch("place", { headers: { "X-Tab": tab }, keepalive: true }).catch(() => {});
  });
  window.addEventListener("pageshow", () => { isLeaving = false; });
  const answers = async (path) => {
    try {
      const { ok, status } = await plainFetch(path, { cache: "no-store", signal: AbortSignal.timeout(8000) });
      return ok || status === 401;
    } catch { return false; }
  };
  // The page stops where it is and keeps every word on it. Once the program answers again, a reload shows what there is.
  const lost = async (sentence) => {
    if (isLost) return;
    isLost = sentence;
    const question = document.querySelector("#live .said");
    if (question && root.dataset.run === "ask") store("sessionStorage", "office-chat-asked", question.textContent);
    state = root.dataset.chat = "idle";
    root.dataset.lost = "yes";
    box().readOnly = false;
    say("");
    showButtons();
    do {
      await pause(BACK_EVERY_MS);
    } while (!(await answers("ready")));
    location.reload();
  };
  // A question whose answer never reached the conversation goes back into the box, unless something else is there.
  const putBack = () => {
    const question = stored("sessionStorage", "office-chat-asked");
    if (!question) return;
    store("sessionStorage", "office-chat-asked", "");
    const said = Array.from(document.querySelectorAll("#talk .said"), (bubble) => bubble.textContent);
    if (!box().value && !said.includes(question)) fillBox(question);
  };
  // Gradio's stream to this page, so that its end is noticed. An answer whose stream has ended is either over, and the
  // page asks for the result, or the connection is lost.
  const watched = (response) => {
    const reader = response.body.getReader();
    nStreams += 1;
    const ended = () => {
      nStreams -= 1;
      setTimeout(streamEnded, ENDED_MS);
    };
    const body = new ReadableStream({
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (!done) return controller.enqueue(value);
          controller.close();
        } catch (error) {
          controller.error(error);
        }
        ended();
      },
      cancel(reason) {
        ended();
        return reader.cancel(reason);
      },
    });
    return new Response(body, { status: response.status, headers: response.headers });
  };
  const streamEnded = async () => {
    const isKnown = () => state !== "writing" || isLost || isLeaving || nStreams || nEnding;
    const asked = nAsked;
    if (isKnown()) return;
    const isThere = await answers("ready");
    if (isKnown() || asked !== nAsked) return;
    if (isThere) location.reload(); // only the stream is lost
    else lost("page_lost");
  };

  // ---- 6. scrolling ------------------------------------------------------------------------------------------
  const NEAR_PX = 48;
  let following = true;
  let lastTop = 0;
  const page = () => document.scrollingElement;
  const fromBottom = () => page().scrollHeight - window.innerHeight - page().scrollTop;
  const follow = () => { if (following) page().scrollTop = page().scrollHeight; };
  window.addEventListener("scroll", () => {
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
  const relabel = () => byId("language").click();
  let isOurs = false;
  const restored = () => setTimeout(async () => {
    attachTo();
    await chat.restored();
    setTimeout(putBack, 300);
    if (language === config.built) return reveal();
    isOurs = true;
    relabel();
  }, 0);
  const switched = () => {
    if (isOurs) { isOurs = false; return; }
    language = language === "zh" ? "en" : "zh";
    store("localStorage", "office-chat-language", language);
    showLanguage();
    if (isLost) say("");
  };

  // ---- Forget me asks once more, in its own words --------------------------------------------------------------
  let sureUntil = 0;
  const forgetPressed = (event, button) => {
    if (Date.now() < sureUntil) { sureUntil = 0; button.removeAttribute("data-sure"); return; }
    event.preventDefault();
    event.stopImmediatePropagation();
    sureUntil = Date.now() + 4000;
    button.dataset.sure = word("page_forget_sure");
    setTimeout(() => button.removeAttribute("data-sure"), 4000);
  };

  let lastSend = 0;
  window.addEventListener("click", (event) => {
    if (event.target.closest && event.target.closest("#conversation .note.afresh")) return byId("again").click();
    const button = event.target.closest && event.target.closest("button");
    if (!button) return;
    if (button.id === "language") switched();
    if (button.id === "forget") forgetPressed(event, button);
    if (button.id === "log_out") logOut();
    if (button.id === "newest") { following = true; follow(); }
    if (button.id === "when_free") waitForRoom();
    if (button.id === "not_now") bePatient(false, true);
    // The second click of a double click on Send meets Stop, which has taken its place.
    if (button.id === "stop" && event.isTrusted && Date.now() - lastSend < 500) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
    // Gradio knows that an event runs only some milliseconds after the click: a second one would be sent as well.
    if (["send", "again", "go_on"].includes(button.id)) {
      if (state !== "idle" || Date.now() - lastSend < 300) {
        event.preventDefault();
        event.stopImmediatePropagation();
      } else {
        lastSend = Date.now();
      }
    }
  }, true);

  // ---- watching the page -----------------------------------------------------------------------------------
  const PAUSE_MS = 60000;
  let attached = false;
  const attachTo = () => {
    if (attached || !byId("live") || !byId("conversation") || !box()) return;
    attached = true;
    for (const id of ["conversation", "live"]) byId(id).setAttribute("translate", "no");
    new MutationObserver(liveChanged).observe(byId("live"), { childList: true, subtree: true });
    new MutationObserver(() => {
      // Gradio names a message by its Markdown source; the words themselves are what a screen reader should say.
      for (const message of document.querySelectorAll("#conversation [aria-label][data-testid]")) {
        message.removeAttribute("aria-label");
      }
      showButtons();
    }).observe(byId("conversation"), { childList: true, subtree: true });
    new ResizeObserver(follow).observe(document.querySelector(".gradio-container") || document.body);
    document.addEventListener("input", (event) => {
      if (event.target !== box()) return;
      showButtons();
      store("sessionStorage", "office-chat-draft", box().value);
      // Somebody is there again: the server looks for events often from now on. The header says if the model is ready.
      if (Date.now() - lastContact > PAUSE_MS) askHello();
    });
    const line = document.createElement("div");
    line.id = "place";
    line.setAttribute("role", "status");
    byId("composer").prepend(line);
    setInterval(() => { if (document.querySelector("#header [data-loading]")) askHello(); }, 2000);
    // What was typed survives a reload: Gradio reloads the page itself when a lost connection is back.
    const draft = stored("sessionStorage", "office-chat-draft");
    if (draft && !box().value) fillBox(draft);
    liveChanged();
  };
  const askHello = () => {
    lastContact = Date.now();
    box().dispatchEvent(new FocusEvent("focus"));
  };

  root.dataset.chat = state;
  root.dataset.login = config.login ? "yes" : "no";
  root.dataset.empty = "yes";
  root.dataset.more = root.dataset.inLine = root.dataset.away = root.dataset.ready = "no";
  showLanguage();
  // Gradio writes the title the page was built with once more when it mounts.
  new MutationObserver(() => { if (document.title !== word("title")) document.title = word("title"); })
    .observe(document.querySelector("title") || document.head, { childList: true, subtree: true });
  setTimeout(reveal, 3000); // whatever happens, nobody looks at an empty page for longer
})();
