/* The admin page's own script: the form of the settings, and what Gradio does not do by itself:
 *   1. which language a request comes from, a login that is over, a lost connection,
 *   2. which tab is open, kept in the address,
 *   3. the settings: checked while they are typed, saved together,
 *   4. coming back after a restart.
 * It talks to the program alone. */
(() => {
  "use strict";
  const root = document.documentElement;
  if (root.dataset.admin) return; // the head can be mounted twice
  root.dataset.admin = "yes";
  const { language, words } = JSON.parse(document.querySelector('meta[name="office-chat-admin"]').content);
  const word = (key, values = {}) => words[key].replace(/\{(\w+)\}/g, (_, name) => values[name]);
  const byId = (id) => document.getElementById(id);
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  root.lang = language === "zh" ? "zh-CN" : "en";

  // ---- 1. requests -------------------------------------------------------------------------------------------
  const plainFetch = window.fetch.bind(window);
  window.fetch = async (input, init = {}) => {
    const url = new URL(input instanceof Request ? input.url : input, document.baseURI);
    if (url.origin !== location.origin) return plainFetch(input, init);
    const headers = new Headers(init.headers || (input instanceof Request ? input.headers : undefined));
    headers.set("X-Lang", language);
    try {
      const response = await plainFetch(input, { ...init, headers });
      // The login is over, or the password is a new one: a reload leads to the login page and back.
      if (response.status === 401 || response.status === 403) location.reload();
      showLost(false);
      return response;
    } catch (error) {
      showLost(true);
      throw error;
    }
  };
  const showLost = (isLost) => {
    if ((root.dataset.lost === "yes") === isLost) return;
    root.dataset.lost = isLost ? "yes" : "no";
    let line = byId("lost");
    if (!line) {
      line = document.createElement("p");
      line.id = "lost";
      line.setAttribute("role", "alert");
      document.body.append(line);
    }
    line.textContent = isLost ? word("js_lost") : "";
  };

  // ---- 2. tabs -----------------------------------------------------------------------------------------------
  const tabOf = (name) => document.querySelector(`#sections button[role="tab"][data-tab-id="${CSS.escape(name)}"]`);
  const openNamedTab = () => {
    const tab = tabOf(location.hash.slice(1));
    if (tab && tab.getAttribute("aria-selected") !== "true") tab.click();
  };
  window.addEventListener("hashchange", openNamedTab);
  document.addEventListener("click", (event) => {
    const tab = event.target.closest('#sections button[role="tab"]');
    if (!tab) return;
    history.replaceState(null, "", `#${tab.dataset.tabId}`);
    // The other language opens the same section.
    document.querySelectorAll("#top a[lang]").forEach((link) => { link.hash = location.hash; });
    tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  });

  // ---- 3. settings -------------------------------------------------------------------------------------------
  const fields = () => [...document.querySelectorAll("[data-setting]")];
  const valueOf = (field) => (field.type === "checkbox" ? String(field.checked) : field.value);
  const dirty = () => fields().filter((field) => valueOf(field) !== field.dataset.saved);
  const put = (field, value) => {
    if (field.type === "checkbox") field.checked = value === "true";
    else field.value = value;
  };
  const collected = (list, read) => Object.fromEntries(list.map((field) => [field.dataset.setting, read(field)]));
  const ask = (path, body) => fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ lang: language, ...body }),
  });

  const bar = () => {
    let made = byId("save-bar");
    if (made) return made;
    made = document.createElement("div");
    made.id = "save-bar";
    made.innerHTML = '<p id="save-said" role="status"></p><button type="button" id="discard"></button>' +
      '<button type="button" id="save-settings"></button>';
    made.querySelector("#discard").textContent = word("js_discard");
    made.querySelector("#save-settings").textContent = word("js_save");
    byId("settings-form").append(made);
    return made;
  };
  const say = (sentence, kind = "") => {
    bar().dataset.kind = kind;
    byId("save-said").textContent = sentence;
  };
  const showBar = () => {
    const n = dirty().length;
    bar().dataset.dirty = n ? "yes" : "no";
    if (n) say(word("js_changed", { n }));
    fields().forEach((field) => {
      field.closest(".setting").classList.toggle("dirty", valueOf(field) !== field.dataset.saved);
    });
  };
  const showProblems = (problems) => fields().forEach((field) => {
    const key = field.dataset.setting;
    const line = byId(`problem-${key}`);
    line.textContent = problems[key] || "";
    line.hidden = !problems[key];
    if (problems[key]) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
  });

  let checking = 0;
  let nTyped = 0;
  const check = async () => {
    const asked = nTyped;
    const response = await ask("/admin/settings/check", { changes: collected(dirty(), valueOf) });
    if (asked === nTyped && response.ok) showProblems((await response.json()).problems);
  };
  const save = async () => {
    const changed = dirty();
    nTyped += 1;
    clearTimeout(checking);
    byId("save-settings").disabled = true;
    try {
      const response = await ask("/admin/settings", {
        changes: collected(changed, valueOf),
        seen: collected(changed, (field) => field.dataset.saved),
      });
      const { said, problems, rows } = await response.json();
      fields().forEach((field) => {
        const row = rows[field.dataset.setting];
        const wasDirty = valueOf(field) !== field.dataset.saved;
        // What was typed stays where it could not be saved; what others have saved is shown everywhere else.
        if (!wasDirty || response.ok) put(field, row.saved);
        field.dataset.saved = row.saved;
        byId(`note-${field.dataset.setting}`).innerHTML = row.note;
      });
      showProblems(problems);
      showBar();
      // The page may be scrolled far away from what is marked, or this bar may lie over it.
      const marked = document.querySelector("#settings-form [aria-invalid]");
      marked?.focus();
      marked?.scrollIntoView({ block: "center" });
      say(said, response.ok ? "fine" : "problem");
    } catch {
      say(word("js_failed"), "problem");
    } finally {
      byId("save-settings").disabled = false;
    }
  };
  const discard = () => {
    nTyped += 1;
    fields().forEach((field) => put(field, field.dataset.saved));
    showProblems({});
    showBar();
    say("");
  };
  const find = (text) => {
    const wanted = text.trim().toLowerCase();
    let nFound = 0;
    document.querySelectorAll(".setting").forEach((row) => {
      const isFound = (row.dataset.key + row.textContent).toLowerCase().includes(wanted);
      row.hidden = !isFound;
      nFound += isFound;
    });
    document.querySelectorAll(".settings .group").forEach((group) => {
      group.hidden = !group.querySelector(".setting:not([hidden])");
    });
    byId("found-none").hidden = nFound > 0;
  };
  document.addEventListener("input", ({ target }) => {
    if (target.id === "find") find(target.value);
    if (!target.dataset || !("setting" in target.dataset)) return;
    nTyped += 1;
    showBar();
    clearTimeout(checking);
    checking = setTimeout(check, 300);
  });
  document.addEventListener("click", ({ target }) => {
    if (target.id === "save-settings") save();
    if (target.id === "discard") discard();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || !event.target.dataset || !("setting" in event.target.dataset)) return;
    if (event.target.tagName !== "TEXTAREA" && dirty().length) save();
  });
  window.addEventListener("beforeunload", (event) => { if (dirty().length) event.preventDefault(); });

  // ---- 4. after a restart ------------------------------------------------------------------------------------
  const isThere = async () => {
    try {
      return (await plainFetch("/ready", { cache: "no-store" })).ok;
    } catch {
      return false;
    }
  };
  let isWaiting = false;
  const waitForRestart = async () => {
    isWaiting = true;
    while (await isThere()) await pause(500); // it says that it is closing as soon as it takes nothing new
    while (!(await isThere())) await pause(500);
    location.reload();
  };
  setInterval(() => {
    if (!isWaiting && document.querySelector("[data-restarting]")) waitForRestart();
  }, 500);

  const ready = new MutationObserver(() => {
    if (!document.querySelector('#sections button[role="tab"]')) return;
    ready.disconnect();
    setTimeout(openNamedTab, 0);
    root.dataset.ready = "yes";
  });
  ready.observe(root, { childList: true, subtree: true });
})();
