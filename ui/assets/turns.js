/* What a reader can do with one turn or all of them: copy as written, edit a question, a thumb up or down; the counter
 * of the box, and the questions of the empty page. `chat.turns` is the text of the conversation, as the server has it
 * or as history.js kept it: one entry a question bubble. */
(() => {
  "use strict";
  const chat = window.officeChat;
  if (!chat || chat.turns) return;
  const { word, byId, all, root, box, on, watch, element, aria, status } = chat;
  chat.turns = [];

  // ---- copying: the clipboard API is there in a secure context only, which http://<LAN address> is not --------
  const copied = (text) => {
    const focused = document.activeElement;
    const area = element("textarea", { value: text });
    area.style.cssText = "position:fixed;top:0;opacity:0";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (focused) focused.focus({ preventScroll: true });
    return done;
  };
  const copy = async (text, button) => {
    let done = false;
    try {
      await navigator.clipboard.writeText(text);
      done = true;
    } catch {
      done = copied(text);
    }
    if (!done) return chat.tell(word("page_copy_failed"));
    button.dataset.done = "yes";
    spoken.textContent = word("page_copied");
    setTimeout(() => { delete button.dataset.done; spoken.textContent = ""; }, 1500);
  };
  // Gradio's own button copies code as it is shown, where tabs have become spaces.
  const copyTabs = (shown, text) => {
    const isShown = (part) => part.includes("\t") && part.replaceAll("\t", "    ").trim() === shown.trim();
    const part = text.split(/^[ \t>]*(?:`{3,}|~{3,}).*\n?/m).find(isShown);
    if (part) setTimeout(() => copied(part.trimEnd()), 0); // after Gradio
  };
  chat.asMarkdown = (turns) =>
    turns.map(({ question, text }) => `${question.replace(/^/gm, "> ")}\n\n${text}\n`).join("\n");

  // ---- the buttons of a turn --------------------------------------------------------------------------------
  const bubbles = () => all("#conversation .said");
  const rowOf = (bubble) => bubble.closest(".message-row");
  const after = (row) => {
    const rows = [];
    for (let next = row; next; next = next.nextElementSibling) if (next.matches(".message-row")) rows.push(next);
    return rows;
  };
  const button = (act) => {
    const made = element("button", { className: "act" });
    made.dataset.act = act;
    return made;
  };
  const label = (made, what = made.dataset.act) => {
    made.title = word("page_" + what);
    aria(made, "label", made.title);
  };
  const buttons = (row, acts) => {
    let place = row.querySelector(".acts");
    if (!place) {
      place = element("div", { className: "acts" }, ...acts.map(button));
      row.append(place);
    }
    for (const made of place.children) label(made);
    return place;
  };
  const decorate = () => {
    for (const made of all("#conversation .copy_code_button")) label(made, "copy"); // Gradio's own speaks English
    for (const [k, bubble] of bubbles().entries()) {
      const turn = chat.turns[k];
      if (!turn) break;
      const row = rowOf(bubble);
      buttons(row, ["copy", "edit"]);
      const answer = after(row)[1];
      if (!answer || !answer.matches(".bot-row")) continue;
      const place = buttons(answer, ["copy", "good", "bad"]);
      place.hidden = !turn.text;
      for (const made of place.children) {
        if (made.dataset.act !== "copy") aria(made, "pressed", turn.verdict === made.dataset.act);
      }
    }
  };
  chat.show = (turns) => { chat.turns = turns; decorate(); };
  // The turns that the page has and `chat.turns` has not, in the words that can be seen.
  chat.unheard = () => bubbles().slice(chat.turns.length).map((bubble) => {
    const answer = after(rowOf(bubble)).slice(1).map((row) => row.innerText);
    return { question: bubble.textContent, text: answer.join("\n\n").trim() };
  });

  const rate = async (k, verdict) => {
    const turn = chat.turns[k];
    verdict = turn.verdict === verdict ? "" : verdict;
    const body = JSON.stringify({ turn: k, verdict });
    const { ok } = await window.fetch("rating", { method: "POST", body });
    if (ok) turn.verdict = verdict;
    decorate();
  };

  // ---- editing: the box has the old text; what came from it on is answered anew ------------------------------
  let editing = null; // which turn
  let draft = "";
  const mark = (css) => {
    for (const row of all("#conversation .message-row")) row.classList.remove("dim", "gone");
    if (editing === null || !bubbles()[editing]) return;
    for (const row of after(rowOf(bubbles()[editing]))) row.classList.add(css);
  };
  const show = (isEditing) => { root.dataset.editing = isEditing; };
  const edit = (k) => {
    if (chat.state !== "idle") return;
    if (editing === null) draft = box().value;
    editing = k;
    chat.fillBox(chat.turns[k].question);
    show("yes");
    mark("dim");
    box().focus();
  };
  chat.stopEditing = (text = draft) => {
    if (editing === null) return;
    editing = null;
    show("no");
    mark("");
    chat.fillBox(text);
  };
  chat.editing = (event, headers) => {
    if (editing === null || event !== "ask") return;
    headers.set("X-Keep", editing);
    mark("gone");
  };
  // The question was taken when its text has left the box.
  chat.edited = () => {
    if (editing === null) return;
    if (box().value) mark("dim");
    else chat.stopEditing("");
  };

  // ---- the counter: code points, as the server counts --------------------------------------------------------
  const count = () => {
    const { limit } = chat.config;
    const n = [...box().value.trimEnd()].length;
    byId("count").dataset.over = n > limit;
    const [shown, most] = [n, limit].map((number) => number.toLocaleString(chat.locale));
    byId("count").textContent = n < limit * 0.8 ? "" : word(n > limit ? "page_over" : "page_count", { n: shown, limit: most });
  };

  const act = (event) => {
    const pressed = chat.at(event, "button");
    if (!pressed) return;
    const { act: what, ask, begin } = pressed.dataset;
    if (ask || begin) {
      chat.fillBox(ask || begin);
      box().focus();
      if (ask) setTimeout(() => byId("send").click(), 50);
    }
    if (pressed.id === "cancel") chat.stopEditing();
    if (pressed.id === "copy_all") copy(chat.asMarkdown(chat.turns), pressed);
    const row = pressed.closest("#conversation .message-row");
    if (!row) return;
    const nBelow = after(row).slice(1).filter((next) => next.querySelector(".said")).length;
    const k = bubbles().length - 1 - nBelow;
    const turn = chat.turns[k];
    if (!turn) return;
    if (pressed.matches(".copy_code_button")) return copyTabs(pressed.parentElement.querySelector("code").textContent, turn.text);
    if (what === "copy") copy(row.matches(".bot-row") ? turn.text : turn.question, pressed);
    else if (what === "edit") edit(k);
    else if (what) rate(k, what);
  };

  const spoken = status("spoken");
  chat.prepare = () => {
    if (byId("count")) return;
    byId("composer").append(spoken);
    byId("writing").after(status("count"));
    on("click", act, true); // captured: Gradio lets no click on its own copy button through
    on("input", (event) => { if (event.target === box()) count(); });
    on("keydown", (event) => { if (event.key === "Escape") chat.stopEditing(); });
    watch(byId("conversation"), decorate);
    count();
  };
})();
