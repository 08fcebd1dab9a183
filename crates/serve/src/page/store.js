// Conversations and settings, kept in the browser.

const CHAT = "warpwave.chat.";
const SETTINGS = "warpwave.settings";
const KEY = "warpwave.key";

function read(storage, name) {
  try {
    return JSON.parse(storage.getItem(name));
  } catch {
    return null;
  }
}

/** A conversation made of data from outside; null if it is none. */
function checked(data) {
  if (typeof data !== "object" || data === null || !Array.isArray(data.messages)) return null;
  const text = (value) => (typeof value === "string" ? value : "");
  const messages = data.messages
    .filter((message) => message && ["user", "assistant"].includes(message.role))
    .map(({ role, content, reasoning, stats }) => ({ role, content: text(content), reasoning: text(reasoning), stats: text(stats) }));
  const known = typeof data.id === "string" && /^[\w-]{1,64}$/.test(data.id);
  // Without encryption, browsers have no UUIDs.
  const id = known ? data.id : crypto.randomUUID?.() ?? String(Math.random()).slice(2);
  return { id, title: text(data.title), updated: Number(data.updated) || Date.now(), used: Number(data.used) || 0, messages };
}

export function newChat() {
  return checked({ messages: [] });
}

/** All conversations, newest first. */
export function chats() {
  const names = Object.keys(localStorage).filter((name) => name.startsWith(CHAT));
  const found = names.map((name) => checked(read(localStorage, name))).filter(Boolean);
  return found.sort((a, b) => b.updated - a.updated);
}

/** Saves a conversation; returns whether there was room. */
export function saveChat(chat) {
  try {
    localStorage.setItem(CHAT + chat.id, JSON.stringify(chat));
    return true;
  } catch {
    return false;
  }
}

export function removeChat(id) {
  localStorage.removeItem(CHAT + id);
}

/** Adds conversations of a file; returns how many. */
export function importChats(text) {
  const data = JSON.parse(text);
  const found = (Array.isArray(data) ? data : data?.conversations ?? [data]).map(checked).filter(Boolean);
  return found.filter(saveChat).length;
}

export function exportChats() {
  return JSON.stringify({ format: "warpwave-conversations", version: 1, conversations: chats() }, null, 2);
}

export function settings() {
  const found = read(localStorage, SETTINGS);
  return { system: "", theme: "", model: "", sampling: {}, ...(found && typeof found === "object" ? found : {}) };
}

export function saveSettings(value) {
  try {
    localStorage.setItem(SETTINGS, JSON.stringify(value));
  } catch {
    // They last until the page is closed.
  }
}

/** The key, which lasts as long as the tab unless it is to be remembered. */
export function key() {
  return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";
}

export function keyIsRemembered() {
  return localStorage.getItem(KEY) !== null;
}

export function saveKey(value, remember) {
  localStorage.removeItem(KEY);
  sessionStorage.removeItem(KEY);
  if (value) (remember ? localStorage : sessionStorage).setItem(KEY, value);
}

export function showTheme({ theme }) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}
