// Markdown to DOM nodes. Text from a model only ever becomes text nodes, and links with a known scheme: there is no way to markup.

const DEPTH = 8; // Nesting of quotes, lists and emphasis.
const REACH = 2000; // How far a mark looks for its end, so that the time stays linear.

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** The nodes of a text. */
export function markdown(text) {
  const into = document.createDocumentFragment();
  blocks(text.replace(/\r\n?/g, "\n").split("\n"), into, 0);
  return into;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const TABLE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

function blocks(lines, into, depth) {
  let at = 0;
  const startsBlock = (line) => !line.trim() || FENCE.test(line) || HEADING.test(line) || RULE.test(line) || ITEM.test(line) || /^\s*>/.test(line);
  while (at < lines.length) {
    const line = lines[at];
    let match;
    if (!line.trim()) {
      at += 1;
    } else if ((match = FENCE.exec(line))) {
      const end = match[1];
      const code = [];
      for (at += 1; at < lines.length && !closes(lines[at], end); at += 1) code.push(lines[at]);
      at += 1;
      into.append(codeBlock(code.join("\n"), match[2]));
    } else if ((match = HEADING.exec(line))) {
      into.append(inline(element("h" + match[1].length), match[2].replace(/\s#+\s*$/, ""), depth));
      at += 1;
    } else if (RULE.test(line)) {
      into.append(element("hr"));
      at += 1;
    } else if (/^\s*>/.test(line) && depth < DEPTH) {
      const quoted = [];
      for (; at < lines.length && /^\s*>/.test(lines[at]); at += 1) quoted.push(lines[at].replace(/^\s*> ?/, ""));
      const quote = element("blockquote");
      blocks(quoted, quote, depth + 1);
      into.append(quote);
    } else if (ITEM.test(line) && depth < DEPTH) {
      at = list(lines, at, into, depth);
    } else if (line.includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") && lines[at + 1].length < REACH && TABLE.test(lines[at + 1])) {
      at = table(lines, at, into, depth);
    } else {
      const paragraph = [line];
      for (at += 1; at < lines.length && !startsBlock(lines[at]); at += 1) paragraph.push(lines[at]);
      into.append(inline(element("p"), paragraph.join("\n"), depth));
    }
  }
}

function closes(line, fence) {
  const text = line.trim();
  return text.length >= fence.length && text.split("").every((character) => character === fence[0]);
}

function codeBlock(code, language) {
  const copied = element("button", { type: "button", textContent: "Copy" });
  copied.addEventListener("click", () => copy(code, copied));
  const label = element("span", { textContent: language || "text" });
  return element("figure", { className: "code" }, element("figcaption", {}, label, copied), element("pre", {}, element("code", { textContent: code })));
}

/** Copies a text and says so on the button. */
export async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => (button.textContent = before), 1200);
}

function list(lines, at, into, depth) {
  const [, space, mark] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(mark);
  const made = element(ordered ? "ol" : "ul");
  if (ordered) made.start = parseInt(mark, 10);
  const indent = space.length;
  while (at < lines.length) {
    const match = ITEM.exec(lines[at]);
    if (!match || match[1].length > indent + 1 || match[1].length < indent || /\d/.test(match[2]) !== ordered) break;
    const content = [match[3]];
    const inner = match[1].length + match[2].length + 1;
    for (at += 1; at < lines.length; at += 1) {
      const line = lines[at];
      const spaces = line.length - line.trimStart().length;
      const blank = !line.trim();
      if (blank && !(at + 1 < lines.length && /^\s/.test(lines[at + 1]) && lines[at + 1].trim())) break;
      if (!blank && spaces < indent + 2) break;
      content.push(line.slice(Math.min(spaces, inner)));
    }
    const item = element("li");
    if (content.length === 1) inline(item, content[0], depth);
    else blocks(content, item, depth + 1);
    made.append(item);
    // A blank line between items.
    if (at + 1 < lines.length && !lines[at].trim() && ITEM.test(lines[at + 1]) && ITEM.exec(lines[at + 1])[1].length === indent) at += 1;
  }
  into.append(made);
  return at;
}

function table(lines, at, into, depth) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|");
  const row = (name, line) => {
    const made = element("tr");
    for (const cell of cells(line)) made.append(inline(element(name), cell.trim(), depth));
    return made;
  };
  const made = element("table", {}, element("thead", {}, row("th", lines[at])));
  const body = element("tbody");
  for (at += 2; at < lines.length && lines[at].includes("|"); at += 1) body.append(row("td", lines[at]));
  made.append(body);
  into.append(element("div", { className: "scroll" }, made));
  return at;
}

const MARKS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

function inline(into, text, depth) {
  let plain = "";
  const flush = () => {
    if (plain) into.append(plain);
    plain = "";
  };
  const end = (mark, from) => {
    const found = text.slice(from, from + REACH).indexOf(mark);
    return found < 0 ? -1 : from + found;
  };
  let at = 0;
  scan: while (at < text.length) {
    const character = text[at];
    if (character === "\\" && /[\\`*_{}[\]()#+\-.!|~<>]/.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
      continue;
    }
    if (character === "`") {
      let count = 1;
      while (text[at + count] === "`") count += 1;
      const close = end("`".repeat(count), at + count);
      if (close > 0) {
        flush();
        into.append(element("code", { textContent: text.slice(at + count, close).replace(/^ (.+) $/, "$1") }));
        at = close + count;
      } else {
        plain += text.slice(at, at + count);
        at += count;
      }
      continue;
    }
    if (character === "[" && depth < DEPTH) {
      const middle = end("](", at + 1);
      const close = middle > 0 ? end(")", middle + 2) : -1;
      const address = close > 0 && safeAddress(text.slice(middle + 2, close));
      if (address) {
        flush();
        into.append(inline(link(address), text.slice(at + 1, middle), DEPTH));
        at = close + 1;
        continue;
      }
    }
    if (character === "h" && /^https?:\/\//.test(text.slice(at, at + 8)) && !/\w/.test(text[at - 1] ?? "")) {
      const found = /^[^\s<>"'`)\]}*]+/.exec(text.slice(at, at + REACH))[0].replace(/[.,;:!?]+$/, "");
      const address = safeAddress(found);
      if (address) {
        flush();
        const made = link(address);
        made.textContent = found;
        into.append(made);
        at += found.length;
        continue;
      }
    }
    if (depth < DEPTH) {
      for (const [mark, name] of MARKS) {
        if (!text.startsWith(mark, at)) continue;
        const inside = at + mark.length;
        // `a_b_c` and `2 * 3 * 4` are not emphasis.
        if (/\s/.test(text[inside] ?? " ") || (mark[0] === "_" && /\w/.test(text[at - 1] ?? ""))) continue;
        const close = end(mark, inside + 1);
        if (close < 0 || /\s/.test(text[close - 1]) || (mark[0] === "_" && /\w/.test(text[close + mark.length] ?? ""))) continue;
        flush();
        into.append(inline(element(name), text.slice(inside, close), depth + 1));
        at = close + mark.length;
        continue scan;
      }
    }
    plain += character;
    at += 1;
  }
  flush();
  return into;
}

function link(address) {
  return element("a", { href: address, target: "_blank", rel: "noopener noreferrer" });
}

/** The address if it leads to a page or a mail address, and not to a program. */
function safeAddress(text) {
  try {
    const address = new URL(text.trim().split(/\s/)[0]);
    return ["http:", "https:", "mailto:"].includes(address.protocol) ? address.href : null;
  } catch {
    return null;
  }
}
