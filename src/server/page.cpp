#include "page.h"

namespace forge::server {

// What a model says only ever becomes text nodes: nothing here parses it as HTML, and the Content-Security-Policy
// lets no script run but the one below.
const std::string_view page_html = R"page(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Forge</title>
<style>
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
* { box-sizing: border-box; }
body { margin: 0; height: 100vh; display: flex; flex-direction: column; font: 16px/1.5 system-ui, sans-serif; }
header, footer { display: flex; gap: .5rem; align-items: center; padding: .6rem 1rem; border: 0 solid var(--line); }
header { border-bottom-width: 1px; flex-wrap: wrap; } footer { border-top-width: 1px; align-items: end; }
main { flex: 1; overflow-y: auto; padding: 1rem; }
main > div { max-width: 48rem; margin: 0 auto 1.2rem; }
button, select, input, textarea { font: inherit; padding: .3rem .6rem; border: 1px solid var(--line); border-radius: .4rem; background: transparent; color: inherit; }
select option { color: initial; }
button { cursor: pointer; } button:disabled { opacity: .4; cursor: default; }
textarea { flex: 1; resize: vertical; min-height: 2.6rem; width: 100%; }
.user .text { background: var(--soft); border-radius: .6rem; padding: .5rem .8rem; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; }
.thinking { opacity: .7; white-space: pre-wrap; overflow-wrap: anywhere; border-left: 3px solid var(--line); padding-left: .8rem; }
pre { background: var(--soft); border-radius: .4rem; padding: .6rem .8rem; overflow-x: auto; white-space: pre; margin: .4rem 0; }
.tools { font-size: .8rem; opacity: .7; display: flex; gap: .4rem; margin-top: .3rem; }
.tools button { padding: 0 .4rem; } .error { color: #c33; }
dialog { border: 1px solid var(--line); border-radius: .6rem; max-width: 32rem; width: 90%; }
dialog label { display: grid; grid-template-columns: 9rem 1fr; gap: .5rem; margin: .4rem 0; align-items: center; }
.grow { flex: 1; }
</style>
<header>
  <strong>Forge</strong> <select id="model" aria-label="Model"></select> <span class="grow"></span>
  <span id="speed"></span> <button id="new">New</button> <button id="open-settings">Settings</button>
</header>
<main id="log"></main>
<footer>
  <textarea id="input" rows="1" placeholder="Message (Enter sends, Shift+Enter begins a line)" aria-label="Message"></textarea>
  <button id="send">Send</button> <button id="stop" disabled>Stop</button>
</footer>
<dialog id="settings"><form method="dialog">
  <label>System message <textarea id="system" rows="3"></textarea></label>
  <label>Temperature <input id="temperature" type="number" min="0" max="5" step="0.1" placeholder="the model's"></label>
  <label>Top p <input id="top_p" type="number" min="0" max="1" step="0.05" placeholder="the model's"></label>
  <label>Most tokens <input id="max_tokens" type="number" min="1" step="1" placeholder="no limit"></label>
  <label>Seed <input id="seed" type="number" step="1" placeholder="any"></label>
  <label>Thinking <select id="think"><option value="">as the model does</option><option value="yes">on</option><option value="no">off</option></select></label>
  <label>Key <input id="key" type="password" autocomplete="off"></label>
  <button>Close</button>
</form></dialog>
<script nonce="@NONCE@">
"use strict";
const $ = id => document.getElementById(id);
for (const name of ["system", "temperature", "top_p", "max_tokens", "seed", "think"]) {
  $(name).value = localStorage.getItem("forge." + name) || "";
  $(name).addEventListener("change", () => localStorage.setItem("forge." + name, $(name).value));
}
let messages = [], running = null;

function headers() {
  const h = {"Content-Type": "application/json"};
  if ($("key").value) h.Authorization = "Bearer " + $("key").value;
  return h;
}
async function loadModels() {
  try {
    const r = await fetch("/v1/models", {headers: headers()});
    if (!r.ok) throw new Error((await r.json()).error.message);
    $("model").replaceChildren(...(await r.json()).data.map(m => new Option(m.id, m.id)));
    $("speed").textContent = "";
  } catch (e) { $("speed").textContent = e.message; }
}
function element(tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}
// Fenced code becomes <pre>, the rest stays text.
function fill(target, text) {
  const parts = text.split(/^```[^\n]*\n?/m);
  target.replaceChildren(...parts.map((part, i) => i % 2 ? element("pre", "", part) : document.createTextNode(part)));
}
function view(message, index) {
  const box = element("div", message.role);
  if (message.reasoning_content) {
    const fold = element("details");
    fold.append(element("summary", "", "Thinking"), element("div", "thinking", message.reasoning_content));
    fold.open = !!message.open;
    fold.addEventListener("toggle", () => { message.open = fold.open; });
    box.append(fold);
  }
  const text = element("div", "text" + (message.error ? " error" : ""));
  if (message.role === "user") text.textContent = message.content; else fill(text, message.content);
  box.append(text);
  const tools = element("div", "tools");
  const button = (label, action) => { const b = element("button", "", label); b.onclick = action; tools.append(b); };
  if (!running) {
    if (message.role === "user") button("Edit", () => { $("input").value = message.content; messages.length = index; draw(); $("input").focus(); });
    else button("Retry", () => { messages.length = index; answer(); });
    if (navigator.clipboard) button("Copy", () => navigator.clipboard.writeText(message.content));
  }
  if (message.note) tools.append(element("span", "", message.note));
  box.append(tools);
  return box;
}
function keepAtEnd(change) {
  const log = $("log"), end = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  change(log);
  if (end) log.scrollTop = log.scrollHeight;
}
function draw() {
  keepAtEnd(log => log.replaceChildren(...messages.map(view)));
  $("send").disabled = !!running; $("stop").disabled = !running;
}
async function answer() {
  const sent = messages.filter(m => !m.error).map(m => ({role: m.role, content: m.content, ...(m.reasoning_content ? {reasoning_content: m.reasoning_content} : {})}));
  if ($("system").value) sent.unshift({role: "system", content: $("system").value});
  const body = {model: $("model").value, messages: sent, stream: true, stream_options: {include_usage: true}};
  for (const name of ["temperature", "top_p", "max_tokens", "seed"]) if ($(name).value !== "") body[name] = Number($(name).value);
  if ($("think").value) body.enable_thinking = $("think").value === "yes";
  const message = {role: "assistant", content: ""}, mine = messages, stop = new AbortController();
  mine.push(message);
  running = stop;
  draw();
  const began = performance.now();
  let first = 0, count = 0;
  try {
    const r = await fetch("/v1/chat/completions", {method: "POST", headers: headers(), body: JSON.stringify(body), signal: stop.signal});
    if (!r.ok) throw new Error((await r.json()).error.message);
    const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const {done, value} = await reader.read();
      if (done) break;
      rest += value;
      const events = rest.split("\n\n");
      rest = events.pop();
      for (const e of events) {
        const data = e.replace(/^data: /, "");
        if (data === "[DONE]") continue;
        const json = JSON.parse(data);
        if (json.error) throw new Error(json.error.message);
        if (json.usage) count = json.usage.completion_tokens;
        for (const choice of json.choices) {
          if (choice.delta.reasoning_content) message.reasoning_content = (message.reasoning_content || "") + choice.delta.reasoning_content;
          if (choice.delta.content) message.content += choice.delta.content;
          if (!first && (choice.delta.content || choice.delta.reasoning_content)) first = performance.now();
          if (choice.finish_reason === "length") message.note = "ended by the limit of tokens";
        }
      }
      if (mine === messages) keepAtEnd(log => log.lastChild.replaceWith(view(message, mine.length - 1)));
    }
    if (count > 1 && first) $("speed").textContent = ((count - 1) / (performance.now() - first) * 1000).toFixed(1) + " tokens/s, first after " + ((first - began) / 1000).toFixed(2) + " s";
  } catch (e) {
    if (e.name === "AbortError") message.note = "stopped";
    else { message.error = true; message.content += (message.content ? "\n" : "") + e.message; }
  }
  if (running === stop) running = null;
  if (mine === messages) draw();
}
function send() {
  const text = $("input").value;
  if (running || !text.trim()) return;
  $("input").value = "";
  messages.push({role: "user", content: text});
  answer();
}
$("send").onclick = send;
$("stop").onclick = () => running && running.abort();
$("new").onclick = () => { if (running) running.abort(); running = null; messages = []; draw(); $("input").focus(); };
$("open-settings").onclick = () => $("settings").showModal();
$("key").addEventListener("change", loadModels);
$("input").addEventListener("keydown", e => { if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); } });
loadModels();
draw();
$("input").focus();
</script>
</html>
)page";

}  // namespace forge::server
