// What both pages have: elements by their id, and the line that says how the server is.

export const $ = (id) => document.getElementById(id);

/** Shows a line above the page, with the progress of loading; an empty text hides it. */
export function notice(text, error = false, percent = null) {
  $("state").hidden = !text;
  $("state").classList.toggle("error", error);
  $("state-text").textContent = text;
  $("state-bar").hidden = percent === null;
  if (percent !== null) $("state-bar").value = percent;
}
