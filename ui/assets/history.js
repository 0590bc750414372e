/* The conversations of this browser: kept in its own localStorage, listed at the side, sent back to the server with
 * the next question once the server has forgotten them. A conversation's id is the tab id it was asked under.
 * On a shared computer they are kept in the tab alone, and gone when it is closed.
 * Nothing here is ever sent anywhere else. */
(() => {
  "use strict";
  const chat = window.officeChat;
  if (!chat || chat.open) return;
  const { word, byId, all, root, box, inTab, inBrowser, pause, on, watch, element, aria } = chat;
  const PREFIX = "office-chat-c-";
  const WIDE = window.matchMedia("(min-width: 68rem)");

  // ---- the store ----------------------------------------------------------------------------------------------
  // An entry: title, named (by the person), pinned, at (ms), turns, asked (a question that has no answer yet).
  const isShared = () => inBrowser.get("shared") === "yes";
  const store = () => (isShared() ? sessionStorage : localStorage);
  const kept = () => (isShared() ? inTab : inBrowser);
  const saying = (key, values) => word(isShared() ? key + "_shared" : key, values);
  const parsed = (key) => {
    try { return JSON.parse(kept().get(key)); } catch { return null; }
  };
  const read = (id) => parsed("c-" + id);
  const write = (id, entry) => {
    try {
      store().setItem(PREFIX + id, JSON.stringify(entry));
    } catch (error) {
      chat.tell(word(error.name === "QuotaExceededError" ? "page_store_full" : "page_store_blocked"));
    }
  };
  const remove = (id) => { try { store().removeItem(PREFIX + id); } catch { /* then nothing was kept */ } };
  const ids = () => {
    try {
      return Object.keys(store()).filter((key) => key.startsWith(PREFIX)).map((key) => key.slice(PREFIX.length));
    } catch { return []; }
  };
  const entries = () =>
    ids().map((id) => ({ id, ...read(id) })).filter(({ turns }) => Array.isArray(turns))
      .sort((a, b) => !!b.pinned - !!a.pinned || b.at - a.at);
  // The title, numbered where another conversation has the same.
  const unlike = (title) => {
    const others = entries().filter(({ id }) => id !== chat.tab).map((entry) => entry.title);
    let numbered = title;
    for (let n = 2; others.includes(numbered); n += 1) numbered = `${title} (${n})`;
    return numbered;
  };
  const isTemporary = () => inTab.get("temporary") === chat.tab;
  const newest = (entry) => entry?.turns.at(-1)?.text;
  const save = (changes) => {
    if (isTemporary()) return;
    const before = read(chat.tab);
    const entry = { turns: [], ...before, ...changes };
    if (changes.asked || newest(entry) !== newest(before)) entry.at = Date.now();
    const first = entry.turns.length ? entry.turns[0].question : entry.asked || "";
    if (!entry.named) entry.title = unlike([...first.trim().split("\n")[0]].slice(0, 60).join(""));
    write(chat.tab, entry);
    draw();
  };

  // ---- with the server ------------------------------------------------------------------------------------------
  let forgottenAt = 0; // when the server forgets this conversation; 0: it does not have it
  const fromServer = () =>
    window.fetch("conversation").then((response) => (response.ok ? response.json() : null)).catch(() => null);
  chat.drop = (id) => window.fetch("conversation", { method: "DELETE", headers: { "X-Tab": id } }).catch(() => null);
  // The page shows what the server has; what is new of it is kept.
  const sync = async () => {
    const id = chat.tab;
    const got = await fromServer();
    if (id !== chat.tab || got?.running) return;
    // The program is gone before it could tell what it wrote: what is read here is kept.
    const unheard = got ? [] : chat.unheard();
    if (unheard.length) save({ turns: [...chat.turns, ...unheard], asked: "" });
    if (!got) return;
    const { turns } = got;
    if (!turns.length && chat.turns.length && root.dataset.empty === "no") return; // only this browser has it
    forgottenAt = turns.length ? Date.now() + got.forgotten_in_s * 1000 : 0;
    chat.show(turns);
    chat.edited();
    if (turns.length) save({ turns, asked: "" });
    else if (read(id) && !read(id).turns.length) remove(id);
    draw();
  };
  chat.over = sync;
  chat.asking = async (event, headers) => {
    chat.editing(event, headers);
    if (event === "ask") save({ asked: box().value.trimEnd() });
    const wishes = kept().get("wishes");
    if (wishes) headers.set("X-Wishes", encodeURIComponent(wishes));
    // Not by the clock alone: a program that was started again has forgotten sooner.
    if (!chat.turns.length || (await chat.place().catch(() => ({}))).n_turns !== 0) return;
    // No model here reads further back than that, and the program takes no more.
    const sizes = chat.turns.map((turn) => JSON.stringify(turn).length + 1);
    let size = sizes.reduce((sum, each) => sum + each, 1);
    let first = 0;
    for (; size > 300_000 && first < sizes.length - 1; first += 1) size -= sizes[first];
    const turns = chat.turns.slice(first);
    await window.fetch("conversation", { method: "PUT", body: JSON.stringify({ turns }) }).catch(() => null);
  };
  let isShown = () => {};
  chat.kept = () => isShown();
  const show = async (turns) => {
    const area = byId("kept").querySelector("textarea");
    const set = (text) => { area.value = text; area.dispatchEvent(new Event("input", { bubbles: true })); };
    set(JSON.stringify({ turns }));
    await pause(50); // Svelte takes the value over
    const shown = new Promise((resolve) => { isShown = resolve; });
    byId("show_kept").click();
    await Promise.race([shown, pause(4000)]);
    set("");
  };
  // What there is of this tab's conversation, on the server or else here.
  const load = async (isOnPage) => {
    const got = (await fromServer()) || { turns: [] };
    const entry = read(chat.tab);
    const turns = got.turns.length || got.running || !entry ? got.turns : entry.turns;
    forgottenAt = got.turns.length ? Date.now() + got.forgotten_in_s * 1000 : 0;
    if (!isOnPage || (turns.length && !got.turns.length)) await show(turns);
    chat.show(turns);
    if (got.running) isOnPage || byId("attach").click();
    else if (got.turns.length) save({ turns, asked: "" });
    else if (entry && entry.asked && !box().value) chat.fillBox(entry.asked);
    draw();
  };

  // ---- from one conversation to another -------------------------------------------------------------------------
  let isMoving = false;
  const move = async (id) => {
    await chat.stopped();
    await sync();
    chat.stopEditing();
    if (isTemporary()) await chat.drop(chat.tab);
    inTab.set("temporary", "");
    chat.tab = id;
    chat.turns = [];
    forgottenAt = 0;
    chat.tell("");
    if (!WIDE.matches) toggle(false);
  };
  const begin = async () => {
    const before = chat.tab;
    await move(chat.randomId());
    // The server drops what it had of it at once; this browser keeps it, and sends it back should it be gone on with.
    await chat.drop(before);
    isMoving = true;
    byId("new_chat").click();
    isMoving = false;
    draw();
    box().focus();
  };
  chat.open = async (id) => {
    if (id === chat.tab) return WIDE.matches || toggle(false);
    if (await chat.isTaken(id)) return chat.tell(word("page_elsewhere"));
    await move(id);
    await load(false);
    window.scrollTo(0, document.documentElement.scrollHeight);
  };
  const discard = async (id) => {
    dropMenu();
    remove(id);
    await chat.drop(id);
    if (id !== chat.tab) return draw();
    chat.turns = [];
    await begin();
    remove(id); // in case it was kept once more on the way
    draw();
  };
  chat.forgotten = () => {
    ids().forEach(remove);
    kept().set("wishes", "");
    fillWishes();
    chat.turns = [];
    forgottenAt = 0;
    draw();
  };

  // ---- the side ---------------------------------------------------------------------------------------------------
  const list = element("ul", { id: "conversations" });
  const find = element("input", { id: "find", type: "search" });
  const forgotten = element("p", { id: "forgotten" });
  const toggle = (isOpen, isChosen) => {
    root.dataset.side = isOpen ? "open" : "closed";
    if (byId("menu")) aria(byId("menu"), "expanded", isOpen);
    if (!isOpen && find.value) {
      find.value = "";
      draw();
    }
    if (isChosen && WIDE.matches) inBrowser.set("side", root.dataset.side);
    if (isChosen) setTimeout(() => (isOpen ? find : byId("menu")).focus(), 50); // once it can be seen
  };
  const download = (name, type, text) => {
    const link = element("a", { download: name, href: URL.createObjectURL(new Blob([text], { type })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const fileName = (title, ending) => `${title.replace(/[\\/:*?"<>|]/g, " ").trim() || "chat"}.${ending}`;
  const change = (id, changes) => { write(id, { ...read(id), ...changes }); draw(); };
  const ACTIONS = {
    rename: ({ id, title }, item) => {
      const name = element("input", { className: "name", value: title, maxLength: 120 });
      aria(name, "label", word("page_rename"));
      const done = () => {
        name.remove();
        if (name.value.trim() && name.value !== title) change(id, { title: name.value.trim(), named: true });
        draw();
      };
      name.addEventListener("blur", done, { once: true });
      name.addEventListener("keydown", ({ key }) => {
        if (key === "Escape") name.value = title;
        else if (key !== "Enter") return;
        name.blur();
      });
      item.replaceChildren(name);
      name.select();
    },
    pin: ({ id, pinned }) => change(id, { pinned: !pinned }),
    export_md: ({ title, turns }) => download(fileName(title, "md"), "text/markdown", `# ${title}\n\n${chat.asMarkdown(turns)}`),
    export_json: ({ id, asked, ...entry }) =>
      download(fileName(entry.title, "json"), "application/json", JSON.stringify({ ...entry, at: new Date(entry.at).toISOString() }, null, 2)),
    delete: ({ id }, item, pressed) => {
      if (pressed.dataset.sure) return discard(id);
      pressed.dataset.sure = "yes";
      pressed.textContent = word("page_delete_sure");
    },
  };
  const menuOf = (entry, item) => {
    const choices = element("div", { className: "choices" });
    for (const [name, action] of Object.entries(ACTIONS)) {
      const key = name === "pin" && entry.pinned ? "unpin" : name;
      const choice = element("button", { textContent: word("page_" + key) });
      choice.dataset.do = name;
      choice.addEventListener("click", () => {
        if (name !== "delete") dropMenu();
        action(entry, item, choice);
      });
      choices.append(choice);
    }
    return choices;
  };
  // Gives the button that had opened it, if one was open.
  const dropMenu = () => {
    const open = list.querySelector(".choices");
    if (!open) return null;
    const more = open.previousSibling;
    open.remove();
    aria(more, "expanded", "false");
    return more;
  };
  // Today's time; yesterday, some days ago; a date.
  const when = (at) => {
    const date = new Date(at);
    const days = Math.round((new Date(at).setHours(0, 0, 0, 0) - new Date().setHours(0, 0, 0, 0)) / 864e5);
    if (!days) return date.toLocaleTimeString(chat.locale, { timeStyle: "short" });
    if (days > -7) return new Intl.RelativeTimeFormat(chat.locale, { numeric: "auto" }).format(days, "day");
    return date.toLocaleDateString(chat.locale);
  };
  const itemOf = (entry) => {
    const title = entry.title || "…";
    const name = element("button", { className: "open", textContent: title, title });
    const age = element("time", { textContent: when(entry.at) });
    const more = element("button", { className: "act more" });
    aria(more, "label", word("page_menu", { title }));
    aria(more, "expanded", "false");
    const item = element("li", {}, name, age, more);
    if (entry.pinned) name.prepend(element("span", { className: "pinned", title: word("page_pinned") }));
    if (entry.id === chat.tab) aria(name, "current", "true");
    name.addEventListener("click", () => chat.open(entry.id));
    more.addEventListener("click", () => {
      if (dropMenu() === more) return;
      item.append(menuOf(entry, item));
      aria(more, "expanded", "true");
      item.lastChild.firstChild.focus();
      item.lastChild.scrollIntoView({ block: "nearest" });
    });
    return item;
  };
  const has = ({ title, turns }, wanted) =>
    [title, ...turns.flatMap(({ question, text }) => [question, text])].some((text) => text.toLowerCase().includes(wanted));
  const draw = () => {
    if (!list.isConnected) return;
    if (list.querySelector(".choices, .name")) return drawFoot(); // somebody is at it
    const known = entries();
    const wanted = find.value.trim().toLowerCase();
    const found = wanted ? known.filter((entry) => has(entry, wanted)) : known;
    const nothing = element("li", { className: "nothing", textContent: known.length ? word("page_not_found") : saying("page_none") });
    list.replaceChildren(...(found.length ? found.map(itemOf) : [nothing]));
    drawFoot();
  };
  const drawFoot = () => {
    const n = Math.max(1, Math.round((forgottenAt - Date.now()) / 60000));
    const say = isTemporary() ? word("page_forgotten_temporary", { n })
      : saying(Date.now() < forgottenAt ? "page_forgotten_in" : "page_forgotten", { n });
    const line = chat.turns.length && (forgottenAt || !isTemporary()) ? say : "";
    if (forgotten.textContent !== line) forgotten.textContent = line;
    drawWhose();
    aria(byId("temporary"), "pressed", isTemporary());
    root.dataset.temporary = isTemporary() ? "yes" : "no";
  };
  // ---- whose computer this is: asked once, at the first visit, and to be changed at the side ---------------------------
  const tick = element("input", { type: "checkbox" });
  const tickWords = element("span");
  const shared = element("label", { id: "shared" }, tick, tickWords);
  const whose = element("div", { id: "whose" });
  // What was kept so far: of a computer that is shared from now on only what this tab shows.
  const share = (yes) => {
    const before = { wishes: kept().get("wishes") || "", entry: read(chat.tab), all: ids().map((id) => [id, read(id)]) };
    ids().forEach(remove);
    kept().set("wishes", "");
    inBrowser.set("shared", yes ? "yes" : "no");
    kept().set("wishes", before.wishes);
    if (!yes) before.all.forEach(([id, entry]) => write(id, entry));
    else if (before.entry) write(chat.tab, before.entry);
    fillWishes();
    drawTick();
    draw();
  };
  const answer = (key, yes, values) => {
    const button = element("button", { textContent: word(key, values) });
    button.addEventListener("click", () => { share(yes); whose.hidden = true; box().focus(); });
    return button;
  };
  const drawTick = () => {
    tick.checked = isShared();
    delete shared.dataset.sure;
    tickWords.textContent = word("page_shared");
  };
  const drawWhose = () => {
    whose.hidden ||= !!inBrowser.get("shared");
    if (whose.hidden) return;
    const n = ids().length;
    const key = n ? "page_whose_many_kept" : "page_whose_many";
    if (whose.dataset.drawn === word(key, { n })) return; // a button that has the focus keeps it
    whose.dataset.drawn = word(key, { n });
    aria(whose, "label", word("page_whose"));
    const asked = element("span", { textContent: word("page_whose") });
    whose.replaceChildren(asked, answer(key, true, { n }), answer("page_whose_mine", false));
  };
  tick.addEventListener("change", () => {
    const n = ids().filter((id) => id !== chat.tab).length;
    const isAsked = tick.checked && n && !shared.dataset.sure;
    if (isAsked) {
      shared.dataset.sure = "yes";
      tick.checked = false;
      tickWords.textContent = word("page_shared_sure", { n });
      return;
    }
    share(tick.checked);
  });

  // ---- what is wanted of every answer: fields of the page, kept here, sent with each question --------------------------
  const wishFields = () => all("[data-wish]");
  const fillWishes = () => {
    const wishes = parsed("wishes") || {};
    for (const field of wishFields()) if (field !== document.activeElement) field.value = wishes[field.dataset.wish] || "";
    root.dataset.wishes = Object.keys(wishes).length ? "yes" : "no";
    const note = document.querySelector("#wishes p");
    if (note && note.textContent !== saying("page_wishes_note")) note.textContent = saying("page_wishes_note");
  };
  const drawWords = () => {
    fillWishes();
    aria(byId("side"), "label", byId("menu").textContent.trim());
    aria(find, "label", find.placeholder = word("page_find"));
    drawTick();
    draw();
  };
  const prepare = () => {
    if (list.isConnected) return;
    const side = byId("side");
    side.setAttribute("role", "complementary");
    side.setAttribute("translate", "no");
    (byId("wishes") || byId("forget")).before(list, forgotten, shared);
    whose.setAttribute("role", "group");
    byId("composer").prepend(whose);
    side.prepend(find);
    aria(byId("menu"), "controls", "side");
    toggle(root.dataset.side === "open");
    find.addEventListener("input", draw);
    on("click", ({ target }) => {
      if (!target.isConnected) return;
      const { id } = target.closest("button") || target;
      if (id === "menu") toggle(root.dataset.side !== "open", true);
      if (id === "hide") toggle(false, true);
      if (id === "temporary") {
        inTab.set("temporary", isTemporary() ? "" : chat.tab);
        sync();
        draw();
      }
      if (!target.closest("#conversations li") && dropMenu()) draw();
      if (!WIDE.matches && root.dataset.side === "open" && !target.closest("#side, #menu")) toggle(false);
    });
    on("keydown", ({ key, target }) => {
      if (key !== "Escape" || !target.isConnected) return; // that of a name that was being changed is its own
      const more = dropMenu();
      if (more) more.focus();
      else if (!WIDE.matches && root.dataset.side === "open") toggle(false, true);
    });
    on("input", ({ target }) => {
      if (!target.dataset.wish) return;
      const given = wishFields().filter(({ value }) => value.trim()).map(({ dataset, value }) => [dataset.wish, value]);
      kept().set("wishes", given.length ? JSON.stringify(Object.fromEntries(given)) : "");
      fillWishes();
    });
    watch(side, fillWishes); // Gradio draws the fields anew, and empty, some time after the language was switched
    on("storage", ({ key }) => {
      if (!key || key.endsWith("-shared")) drawWords(); // another tab was told whose computer this is
      else if (key.startsWith(PREFIX)) draw();
    });
    setInterval(drawFoot, 20000);
    drawWords();
  };
  // New chat is a new id; the old conversation stays where it is.
  on("click", (event) => {
    if (isMoving || !chat.at(event, "#new_chat")) return;
    chat.swallow(event);
    begin();
  }, true);
  chat.restored = () => {
    chat.prepare();
    prepare();
    return Promise.race([load(true), pause(2000)]);
  };
  chat.relabelled = () => {
    drawWords();
    if (chat.turns.length && !forgottenAt) show(chat.turns);
    chat.show(chat.turns);
  };
  toggle(WIDE.matches && inBrowser.get("side") !== "closed");
})();
