// The image page: settings, jobs and the gallery.

import { getJson, streamJob } from "./api.js";
import * as gallery from "./gallery.js";
import { element } from "./markdown.js";
import { Easel } from "./mask.js";
import { $, notice } from "./page.js";
import * as store from "./store.js";

const settings = store.settings();
/** What the server says of its image model. */
let facts = null;
/** Ends the jobs of the page, while some run. */
let running = null;
let shown = [];

const easel = new Easel(() => ({ size: Number($("brush").value), erase: $("erase").checked }));
let hasInit = false;
$("easel").append(easel.canvas);

// --- Settings of an image -----------------------------------------------------------------------------------------------------------

function fillSelect(id, names, chosen) {
  $(id).replaceChildren(...names.map((name) => element("option", { value: name.value ?? name, textContent: name.text ?? name })));
  $(id).value = chosen ?? "";
}

/** Fits the form to the model. */
function showFacts(model) {
  facts = model.image;
  $("model").textContent = model.id;
  for (const id of ["width", "height"]) {
    Object.assign($(id), { min: facts.min_size, max: facts.max_size, step: facts.size_multiple });
    $(id).value ||= facts.default_size;
  }
  $("steps").value ||= facts.steps;
  $("guidance").value ||= facts.guidance_scale;
  $("strength").value ||= facts.strength;
  fillSelect("sampler", facts.samplers, facts.sampler);
  fillSelect("schedule", [{ value: "", text: "of the model" }, ...facts.schedules]);
  $("negative-row").hidden = !facts.negative_prompt;
  $("lora-row").hidden = !facts.loras;
  restore(settings.image ?? {});
}

/** Puts the settings of an image into the form. */
function restore(values) {
  for (const [id, value] of Object.entries(values)) {
    if (!$(id)?.closest("#request") || typeof value === "object" || $(id).type === "file") continue;
    if ($(id).tagName === "SELECT" && ![...$(id).options].some((option) => option.value === String(value))) continue;
    $(id).value = value;
  }
}

function formValues() {
  const ids = ["prompt", "negative", "width", "height", "steps", "guidance", "sampler", "schedule", "seed", "count", "loras", "strength"];
  return Object.fromEntries(ids.map((id) => [id, $(id).value]));
}

function parsedLoras(text) {
  const one = (item) => {
    const [, path, strength] = /^(.*?)(?::(-?[\d.]+))?$/.exec(item);
    return { path, strength: strength === undefined ? 1 : Number(strength) };
  };
  return text.split(",").map((item) => item.trim()).filter(Boolean).map(one);
}

/** The job's fields. */
function jobOf(values, seed) {
  const job = {
    operation: "image_generation",
    prompt: values.prompt,
    width: Number(values.width),
    height: Number(values.height),
    steps: Number(values.steps),
    guidance_scale: Number(values.guidance),
    sampler: values.sampler,
    seed,
  };
  if (values.schedule) job.schedule = values.schedule;
  if (facts.negative_prompt && values.negative.trim()) job.negative_prompt = values.negative;
  const loras = facts.loras ? parsedLoras(values.loras) : [];
  if (loras.length) job.loras = loras;
  if (hasInit) {
    job.strength = Number(values.strength);
    const mask = easel.mask();
    if (mask) Object.assign(job, { operation: "image_inpaint", init_image: easel.image(), mask_image: mask });
    else Object.assign(job, { operation: "image_transform", input_image: easel.image() });
  }
  return job;
}

// --- The start image ----------------------------------------------------------------------------------------------------------------

async function takeInit(blob) {
  let image;
  try {
    image = await createImageBitmap(blob);
  } catch {
    notice("The file is not an image that the browser can read.", true);
    return;
  }
  // As many pixels as the model is used to, in the image's shape.
  const { size_multiple: step, min_size: least, max_size: most, default_size: usual } = facts;
  const scale = usual / Math.sqrt(image.width * image.height);
  const fit = (side) => Math.min(most, Math.max(least, Math.round((side * scale) / step) * step));
  const [width, height] = [fit(image.width), fit(image.height)];
  $("width").value = width;
  $("height").value = height;
  easel.show(image, width, height);
  hasInit = true;
  showInit();
}

function showInit() {
  $("init").hidden = !hasInit;
  $("init-remove").hidden = !hasInit;
  const painting = $("paint").checked;
  easel.painting = painting;
  $("brushes").hidden = !painting;
  $("mask-hint").hidden = !painting;
}

// --- Jobs ---------------------------------------------------------------------------------------------------------------------------

function blobOf(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  return new Blob([bytes], { type: "image/png" });
}

/** Shows an image; the address of the one before is freed. */
function showPicture(node, blob) {
  const before = node.src;
  node.src = URL.createObjectURL(blob);
  if (before.startsWith("blob:")) URL.revokeObjectURL(before);
}

/** Runs one job and returns its image. */
async function runJob(job, label, signal) {
  const started = performance.now();
  $("progress").removeAttribute("value");
  $("progress-text").textContent = label + "waiting";
  for await (const { name, data } of streamJob(job, store.key(), signal)) {
    if (name === "progress") {
      const speed = data.step / ((performance.now() - started) / 1000);
      $("progress").value = data.step / data.total;
      $("progress-text").textContent = `${label}step ${data.step} of ${data.total}, ${speed.toFixed(1)} steps/s`;
    } else if (name === "preview") {
      showPicture($("picture"), blobOf(data.image));
    } else if (name === "complete") {
      return { blob: blobOf(data.image), seed: data.seed, seconds: (performance.now() - started) / 1000 };
    }
  }
  throw new Error("The connection ended before the image was complete.");
}

async function generate() {
  if (running || !facts) return;
  const values = formValues();
  settings.image = { ...values, loras: values.loras };
  store.saveSettings(settings);
  const count = Number(values.count);
  const first = values.seed === "" ? Math.floor(Math.random() * 2 ** 32) : Number(values.seed);
  running = new AbortController();
  $("picture").removeAttribute("src");
  notice("");
  showRunning();
  try {
    for (let number = 0; number < count; number += 1) {
      const label = count > 1 ? `Image ${number + 1} of ${count}: ` : "";
      const { blob, seed, seconds } = await runJob(jobOf(values, first + number), label, running.signal);
      showPicture($("picture"), blob);
      const kept = { ...values, seed: String(seed), model: $("model").textContent, seconds: seconds.toFixed(1), started_from_image: hasInit };
      const id = `${Date.now()}-${seed}`;
      const saved = await gallery.save({ id, created: Date.now(), blob, settings: kept });
      if (!saved) notice("The browser's storage is full: the new images last until the page is closed.", true);
      await showGallery();
    }
  } catch (error) {
    if (error.name !== "AbortError") notice(error.message, true);
    if (error.status === 401) askForKey();
  }
  running = null;
  showRunning();
}

function showRunning() {
  $("send").hidden = Boolean(running);
  $("stop").hidden = !running;
  $("stage").hidden = !running;
}

// --- The gallery --------------------------------------------------------------------------------------------------------------------

function button(text, act) {
  const made = element("button", { type: "button", textContent: text });
  made.addEventListener("click", act);
  return made;
}

async function showGallery() {
  const images = await gallery.images();
  const known = new Map(shown.map((one) => [one.image.id, one]));
  const ids = new Set(images.map(({ id }) => id));
  for (const { image, address } of shown) if (!ids.has(image.id)) URL.revokeObjectURL(address);
  shown = images.map((image) => known.get(image.id) ?? { image, address: URL.createObjectURL(image.blob) });
  const tile = ({ image, address }) => {
    const made = button("", () => view(image, address));
    made.className = "tile";
    made.title = image.settings.prompt ?? "";
    made.append(element("img", { src: address, alt: image.settings.prompt ?? "", loading: "lazy" }));
    return made;
  };
  $("gallery").replaceChildren(...shown.map(tile));
  $("empty").hidden = shown.length > 0;
}

function view(image, address) {
  const values = image.settings;
  $("viewer-title").textContent = new Date(image.created).toLocaleString();
  $("viewer-picture").src = address;
  $("viewer-picture").alt = values.prompt ?? "";
  const facts = [
    ["steps", "steps"], ["guidance", "guidance"], ["sampler", "sampler"], ["schedule", "schedule"], ["seed", "seed"],
    ["strength", "strength"], ["loras", "LoRA"], ["model", "model"], ["seconds", "seconds"],
  ].filter(([key]) => values[key] && (key !== "strength" || values.started_from_image)).map(([key, name]) => `${name} ${values[key]}`);
  const negative = values.negative ? [`Without: ${values.negative}`] : [];
  $("viewer-text").textContent = [values.prompt, ...negative, [`${values.width}x${values.height}`, ...facts].join(", ")].join("\n");
  const close = () => $("viewer").close();
  $("viewer-tools").replaceChildren(
    button("Download", () => element("a", { href: address, download: `warpwave-${values.seed}.png` }).click()),
    button("Use settings", () => {
      restore({ ...values, count: 1 });
      close();
    }),
    button("Use as start image", async () => {
      close();
      await takeInit(image.blob);
    }),
    button("Delete", async () => {
      close();
      await gallery.remove(image.id);
      await showGallery();
    }),
  );
  $("viewer").showModal();
}

// --- The server ---------------------------------------------------------------------------------------------------------------------

let attempt = 0;

/** Waits until the model is loaded. */
async function connect() {
  const own = ++attempt;
  const again = () => setTimeout(() => own === attempt && connect(), 1000);
  $("send").disabled = true;
  try {
    const models = (await getJson("/v1/models", store.key())).data;
    const model = models.find((one) => one.image);
    $("chat-link").hidden = !models.some(({ task }) => task === "text-generation");
    if (model) {
      notice("");
      showFacts(model);
      $("send").disabled = false;
      return;
    }
    const { status, percent } = await getJson("/v1/loading/progress", store.key());
    if (status === "loading") {
      notice("The model is loading.", false, percent);
      again();
    } else {
      notice("This server has no image model.", true);
    }
  } catch (error) {
    if (error.status === 401) askForKey();
    else {
      notice(error.message + " Trying again.", true);
      again();
    }
  }
}

function askForKey() {
  notice("This server needs an API key. Enter it in the settings.", true);
  showSettings();
  $("key").focus();
}

function showSettings() {
  $("key").value = store.key();
  $("remember").checked = store.keyIsRemembered();
  $("theme").value = settings.theme;
  if (!$("settings").open) $("settings").showModal();
}

function takeSettings() {
  const before = store.key();
  store.saveKey($("key").value.trim(), $("remember").checked);
  settings.theme = $("theme").value;
  store.saveSettings(settings);
  store.showTheme(settings);
  if (store.key() !== before || !facts) connect();
}

// --- Start --------------------------------------------------------------------------------------------------------------------------

$("request").addEventListener("submit", (event) => {
  event.preventDefault();
  generate();
});
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("request").requestSubmit();
});
$("stop").addEventListener("click", () => running?.abort());
$("choose").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", async () => {
  const file = $("file").files[0];
  $("file").value = "";
  if (file && facts) await takeInit(file);
});
$("init-remove").addEventListener("click", () => {
  hasInit = false;
  $("paint").checked = false;
  showInit();
});
$("paint").addEventListener("change", showInit);
$("undo").addEventListener("click", () => easel.undo());
$("clear").addEventListener("click", () => easel.clear());
$("settings-open").addEventListener("click", showSettings);
$("settings").addEventListener("close", takeSettings);
$("delete-all").addEventListener("click", async () => {
  if (!confirm("Delete all images of this browser?")) return;
  await gallery.removeAll();
  await showGallery();
});
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", async (event) => {
  event.preventDefault();
  const file = event.dataTransfer?.files[0];
  if (file && facts) await takeInit(file);
});
store.showTheme(settings);
showGallery();
connect();
