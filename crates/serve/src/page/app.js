// The chat page: conversations, messages and answers.

import { getJson, streamChat } from "./api.js";
import { copy, element, markdown } from "./markdown.js";
import { $, notice } from "./page.js";
import * as store from "./store.js";

const RENDER_MS = 60; // Between renderings of an answer that is being written.

const settings = store.settings();
let chat = store.newChat();
let models = [];
/** The answer being written: its message and how to end it. */
let running = null;

// --- Messages ---------------------------------------------------------------------------------------------------------------------

function button(text, act, title = text) {
  const made = element("button", { type: "button", textContent: text, title });
  made.addEventListener("click", act);
  return made;
}

function shownMessage(message) {
  const body = element("div", { className: "body" });
  const tools = element("div", { className: "tools" });
  const shown = element("article", { className: "message " + message.role }, body, tools);
  message.view = { shown, body, tools };
  fill(message);
  return shown;
}

/** Shows what a message contains now. */
function fill(message) {
  const { body, tools, shown } = message.view;
  const writing = running?.message === message;
  // A fold that the reader opened stays open.
  const open = body.querySelector(".reasoning")?.open ?? false;
  body.replaceChildren();
  if (message.role === "user") {
    body.append(element("div", { className: "plain", textContent: message.content }));
  } else {
    if (message.reasoning) {
      const thinking = writing && !message.content;
      const label = element("summary", { textContent: thinking ? "Thinking…" : "Thoughts" });
      const text = element("div", { className: "text" }, markdown(message.reasoning));
      body.append(element("details", { className: "reasoning", open }, label, text));
    }
    body.append(element("div", { className: "text" }, markdown(message.content)));
    if (message.failure) body.append(element("p", { className: "failure", textContent: message.failure, role: "alert" }));
  }
  shown.classList.toggle("waiting", writing && !message.content && !message.reasoning);
  tools.replaceChildren();
  if (writing) {
    tools.append(element("span", { className: "stats", textContent: message.stats ?? "" }));
    return;
  }
  const copied = button("Copy", () => copy(message.content, copied));
  tools.append(copied);
  if (message.role === "user") {
    tools.append(button("Edit", () => edit(message)));
  } else {
    tools.append(button("Regenerate", () => regenerate(message)));
    if (message.content && message === chat.messages.at(-1)) tools.append(button("Continue", () => answer(message)));
    tools.append(element("span", { className: "stats", textContent: message.stats ?? "" }));
  }
}

function showChat() {
  const log = $("log");
  log.replaceChildren(...chat.messages.map(shownMessage));
  if (!chat.messages.length) log.append(element("p", { className: "empty", textContent: "Ask something." }));
  log.scrollTop = log.scrollHeight;
  showUsage();
  showChats();
}

function edit(message) {
  if (running) return;
  const text = element("textarea", { value: message.content });
  text.setAttribute("aria-label", "Edit the message");
  const send = () => {
    if (running || !text.value.trim()) return;
    message.content = text.value.trim();
    chat.messages.length = chat.messages.indexOf(message) + 1;
    showChat();
    answer();
  };
  message.view.body.replaceChildren(text);
  message.view.tools.replaceChildren(button("Send", send), button("Cancel", () => fill(message)));
  text.focus();
}

function regenerate(message) {
  if (running) return;
  chat.messages.length = chat.messages.indexOf(message);
  showChat();
  answer();
}

// --- Answers ----------------------------------------------------------------------------------------------------------------------

/** Asks the model for the next message, or for more of the last one. */
async function answer(continued) {
  if (running) return;
  const sent = chat.messages.map(({ role, content }) => ({ role, content }));
  if (settings.system) sent.unshift({ role: "system", content: settings.system });
  const body = { model: $("model").value, messages: sent, stream: true, stream_options: { include_usage: true }, ...settings.sampling };
  if (continued) Object.assign(body, { continue_final_message: true, add_generation_prompt: false });
  const message = continued ?? { role: "assistant", content: "", reasoning: "" };
  const owner = chat;
  const stop = new AbortController();
  running = { message, stop };
  message.failure = "";
  message.stats = "";
  if (!continued) {
    chat.messages.push(message);
    $("log").querySelector(".empty")?.remove();
    $("log").append(shownMessage(message));
  }
  showRunning();
  const started = performance.now();
  let first = 0, tokens = 0, usage = null, drawn = 0, timer = 0;
  const draw = () => {
    timer = 0;
    drawn = performance.now();
    const log = $("log");
    const follow = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    if (message.view.shown.isConnected) fill(message);
    if (follow) log.scrollTop = log.scrollHeight;
  };
  const speed = () => {
    const seconds = (performance.now() - first) / 1000;
    return tokens > 1 && seconds > 0 ? `${((tokens - 1) / seconds).toFixed(1)} tokens/s` : "";
  };
  try {
    for await (const chunk of streamChat(body, store.key(), stop.signal)) {
      usage = chunk.usage ?? usage;
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      const { content, reasoning, reasoning_content } = choice.delta ?? {};
      if (content || reasoning || reasoning_content) {
        first ||= performance.now();
        tokens += 1;
        message.content += content ?? "";
        message.reasoning += reasoning ?? reasoning_content ?? "";
        message.stats = speed();
        timer ||= setTimeout(draw, Math.max(0, RENDER_MS - (performance.now() - drawn)));
      }
      if (choice.finish_reason === "length") message.failure = "The answer reached the maximum length.";
    }
  } catch (error) {
    if (error.name !== "AbortError") message.failure = error.message;
    if (error.status === 401) askForKey();
  }
  clearTimeout(timer);
  if (usage) {
    tokens = usage.completion_tokens;
    owner.used = usage.total_tokens;
  }
  if (first) {
    const wait = ((first - started) / 1000).toFixed(2);
    message.stats = [`${tokens} tokens`, speed(), `first after ${wait} s`].filter(Boolean).join(" · ");
  }
  running = null;
  owner.updated = Date.now();
  save(owner);
  draw();
  // The message before is no longer the last.
  if (owner === chat && !continued) chat.messages.slice(0, -1).forEach((other) => other.role === "assistant" && other.view && fill(other));
  showRunning();
  showUsage();
  showChats();
}

function send() {
  const text = $("text").value.trim();
  if (!text || running) return;
  $("text").value = "";
  grow();
  if (!chat.messages.length) {
    $("log").replaceChildren();
    chat.title = text.slice(0, 80);
  }
  const message = { role: "user", content: text };
  chat.messages.push(message);
  $("log").append(shownMessage(message));
  $("log").scrollTop = $("log").scrollHeight;
  save(chat);
  answer();
}

function showRunning() {
  $("send").hidden = Boolean(running);
  $("stop").hidden = !running;
}

/** Saves a conversation without the nodes that show it. */
function save(one) {
  const messages = one.messages.map(({ role, content, reasoning, stats }) => ({ role, content, reasoning, stats }));
  if (!store.saveChat({ ...one, messages })) notice("The browser's storage is full: this conversation is not saved. Remove or export others.", true);
}

// --- Conversations ----------------------------------------------------------------------------------------------------------------

function showChats() {
  const row = (one) => {
    const title = button(one.title || "Untitled", () => open(one));
    title.className = "title";
    const remove = button("✕", () => {
      if (!confirm(`Delete the conversation "${one.title}"?`)) return;
      store.removeChat(one.id);
      if (one.id === chat.id) open(store.newChat());
      else showChats();
    }, "Delete");
    remove.className = "remove";
    const made = element("div", { className: "chat" }, title, remove);
    if (one.id === chat.id) made.setAttribute("aria-current", "true");
    return made;
  };
  $("chats").replaceChildren(...store.chats().map(row));
}

function open(one) {
  running?.stop.abort();
  chat = one;
  side(false);
  showChat();
}

function side(shown) {
  document.body.classList.toggle("side-open", shown);
  $("shade").hidden = !shown;
}

function showUsage() {
  const most = models.find((model) => model.id === $("model").value)?.max_model_len;
  $("usage").hidden = !chat.used;
  $("used").textContent = most ? `${chat.used} of ${most} tokens` : `${chat.used} tokens`;
  $("meter").value = most ? chat.used / most : 0;
}

// --- Settings ---------------------------------------------------------------------------------------------------------------------

function showSettings() {
  $("key").value = store.key();
  $("remember").checked = store.keyIsRemembered();
  $("system").value = settings.system;
  $("theme").value = settings.theme;
  for (const input of document.querySelectorAll("[data-setting]")) input.value = settings.sampling[input.dataset.setting] ?? "";
  if (!$("settings").open) $("settings").showModal();
}

function takeSettings() {
  const before = store.key();
  store.saveKey($("key").value.trim(), $("remember").checked);
  settings.system = $("system").value.trim();
  settings.theme = $("theme").value;
  settings.sampling = {};
  for (const input of document.querySelectorAll("[data-setting]")) {
    const value = input.valueAsNumber;
    if (Number.isFinite(value) && input.validity.valid) settings.sampling[input.dataset.setting] = value;
  }
  store.saveSettings(settings);
  store.showTheme(settings);
  if (store.key() !== before || !models.length) connect();
}

function askForKey() {
  notice("This server needs an API key. Enter it in the settings.", true);
  showSettings();
  $("key").focus();
}

// --- The server -------------------------------------------------------------------------------------------------------------------

let attempt = 0;

/** Waits until a model is loaded, then lists the models. */
async function connect() {
  const own = ++attempt;
  const again = () => setTimeout(() => own === attempt && connect(), 1000);
  try {
    const all = (await getJson("/v1/models", store.key())).data;
    models = all.filter(({ task }) => task === "text-generation");
    const images = all.some(({ task }) => task === "text-to-image");
    $("images-link").hidden = !images;
    if (models.length) {
      notice("");
    } else if (images) {
      location.replace("/images");
    } else {
      const { status, percent } = await getJson("/v1/loading/progress", store.key());
      notice(status === "loading" ? "The model is loading." : `The server is ${status}.`, false, percent);
      again();
    }
  } catch (error) {
    models = [];
    if (error.status === 401) askForKey();
    else {
      notice(error.message + " Trying again.", true);
      again();
    }
  }
  $("send").disabled = !models.length;
  $("model").replaceChildren(...models.map(({ id }) => element("option", { value: id, textContent: id })));
  if (models.some(({ id }) => id === settings.model)) $("model").value = settings.model;
  showUsage();
}

// --- Start ------------------------------------------------------------------------------------------------------------------------

function grow() {
  const text = $("text");
  text.style.height = "auto";
  text.style.height = text.scrollHeight + 2 + "px";
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
$("text").addEventListener("input", grow);
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    if (!$("send").disabled) send();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || $("settings").open) return;
  running?.stop.abort();
  side(false);
});
$("stop").addEventListener("click", () => running?.stop.abort());
$("new").addEventListener("click", () => {
  open(store.newChat());
  $("text").focus();
});
$("menu").addEventListener("click", () => side(true));
$("shade").addEventListener("click", () => side(false));
$("settings-open").addEventListener("click", showSettings);
$("settings").addEventListener("close", takeSettings);
$("model").addEventListener("change", () => {
  settings.model = $("model").value;
  store.saveSettings(settings);
  showUsage();
});
$("export").addEventListener("click", () => {
  const address = URL.createObjectURL(new Blob([store.exportChats()], { type: "application/json" }));
  element("a", { href: address, download: "conversations.json" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
});
$("import").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", async () => {
  try {
    const count = store.importChats(await $("file").files[0].text());
    notice(`${count} conversations added.`);
  } catch {
    notice("The file has no conversations.", true);
  }
  $("file").value = "";
  showChats();
});
store.showTheme(settings);
const last = store.chats()[0];
if (last) chat = last;
showChat();
connect();
