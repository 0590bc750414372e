/* Written for browsers of any age: one that cannot run this page says so instead of staying blank. What is asked for
 * here is what our scripts and Gradio's need; page.js leaves a page alone whose <html> carries data-chat. */
(function () {
  var isNew = window.structuredClone && window.AbortSignal && AbortSignal.timeout && window.CSS && CSS.supports("height", "1dvh");
  if (isNew || document.documentElement.getAttribute("data-chat")) return;
  document.documentElement.setAttribute("data-chat", "too-old");
  var words = JSON.parse(document.querySelector('meta[name="office-chat"]').content).words;
  function say() {
    document.body.innerHTML = '<p style="max-width: 30em; margin: 20vh auto; padding: 1em; font: 1.1em sans-serif"></p>';
    document.body.firstChild.textContent = words.en.page_too_old + " " + words.zh.page_too_old;
  }
  if (document.body) say();
  else document.addEventListener("DOMContentLoaded", say);
})();
