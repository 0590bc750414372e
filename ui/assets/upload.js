/* Sends model files that the owner picks, one after the other, and says how far it is. Not fetch: that tells no progress. */
(() => {
  "use strict";
  if (window.officeChatUploads) return; // the head can be mounted twice
  window.officeChatUploads = true;
  const send = (file, input, show) => new Promise((resolve) => {
    const request = new XMLHttpRequest();
    const fill = (text, percent) => text.replace("{file}", file.name).replace("{percent}", percent);
    request.open("PUT", input.dataset.upload + encodeURIComponent(file.name));
    request.setRequestHeader("X-Lang", document.documentElement.lang.startsWith("zh") ? "zh" : "en");
    request.upload.onprogress = (event) => {
      show(fill(input.dataset.going, Math.floor((100 * event.loaded) / Math.max(1, event.total))));
    };
    request.onload = () => {
      let said = input.dataset.lost;
      try {
        said = JSON.parse(request.responseText).said || said;
      } catch {
        // an answer that is not ours: the sentence about a lost connection stays
      }
      show(said, request.status >= 400);
      resolve(request.status < 400);
    };
    request.onerror = () => {
      show(input.dataset.lost, true);
      resolve(false);
    };
    request.send(file);
  });
  document.addEventListener("change", async (event) => {
    const input = event.target.closest("input[data-upload]");
    if (!input || !input.files.length) return;
    const line = input.closest(".upload").querySelector(".upload-said");
    const show = (text, isBad = false) => {
      line.textContent = text;
      line.setAttribute("role", isBad ? "alert" : "status");
    };
    const files = [...input.files].sort((a, b) => a.name.localeCompare(b.name));
    input.disabled = true;
    for (const file of files) {
      if (!(await send(file, input, show))) break;
    }
    input.disabled = false;
    input.value = "";
  });
})();
