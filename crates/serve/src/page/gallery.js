// Generated images and their settings, kept in the browser's database.

const STORE = "images";

let opening = null;
/** Where there is no database, images last until the page is closed. */
const memory = new Map();

function database() {
  opening ??= new Promise((resolve) => {
    let request;
    try {
      request = indexedDB.open("warpwave", 1);
    } catch {
      resolve(null);
      return;
    }
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => resolve(null);
    request.onblocked = () => resolve(null);
  });
  return opening;
}

/** Runs one request in a transaction. */
async function run(mode, act) {
  const found = await database();
  if (!found) throw new Error("The browser does not allow a database.");
  return new Promise((resolve, reject) => {
    const transaction = found.transaction(STORE, mode);
    const request = act(transaction.objectStore(STORE));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onabort = transaction.onerror = () => reject(transaction.error ?? new Error("The database failed."));
  });
}

/** Saves an image `{ id, created, blob, settings }`; returns whether it will be there after a reload. */
export async function save(image) {
  try {
    await run("readwrite", (store) => store.put(image));
    return true;
  } catch {
    memory.set(image.id, image);
    return false;
  }
}

/** All images, newest first. */
export async function images() {
  let stored = [];
  try {
    stored = await run("readonly", (store) => store.getAll());
  } catch {
    // Those of this page remain.
  }
  const usable = (image) => image?.blob instanceof Blob && typeof image.settings === "object" && image.settings !== null;
  return [...stored, ...memory.values()].filter(usable).sort((a, b) => b.created - a.created);
}

export async function remove(id) {
  memory.delete(id);
  await run("readwrite", (store) => store.delete(id)).catch(() => {});
}

export async function removeAll() {
  memory.clear();
  await run("readwrite", (store) => store.clear()).catch(() => {});
}
