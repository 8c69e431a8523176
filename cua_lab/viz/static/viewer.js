// The mask viewer: one episode (or two, side by side) token by token. One file for two homes: an
// anywidget in a notebook (the default export) and a standalone page (`boot`). It shows a payload,
// whose shape cua_lab/viz/payload.py documents, and asks nobody else for anything.
//
// Rows are the segments of the sequence, long ones cut at CHUNK tokens. Rows are gathered into
// sections of about SECTION tokens; a section's spans are made when it comes near the viewport, so
// that 50,000 tokens open as fast as 500. All text goes in through textContent: nothing is markup.

const ROLES = {
  prompt: "prompt", policy: "policy", scaffold: "scaffold", image: "image", resynced: "resynced",
};
const ROLE_WORDS = {
  prompt: "given before the first turn", policy: "sampled, trained", scaffold: "template and tool text",
  image: "one token per 2×2 patches", resynced: "history as re-rendered, not trained",
};
const THOUGHT = "policy, before its call";
const CHUNK = 256;
const FOLD = 160; // characters of a prompt from which on it is folded
const SECTION = 320;
const PLAY_MS = 1100;

// Scales: [upper bound (exclusive), label]; the last bound is Infinity.
const SCALES = {
  logprob: { kind: "seq", key: (v) => -v, bins: [
    [0.01, "p > 0.99"], [0.105, "0.9–0.99"], [0.693, "0.5–0.9"], [2.303, "0.1–0.5"], [4.605, "0.01–0.1"], [Infinity, "p < 0.01"]] },
  entropy: { kind: "seq", key: (v) => v, bins: [
    [0.05, "< 0.05 nat"], [0.25, "0.05–0.25"], [0.7, "0.25–0.7"], [1.4, "0.7–1.4"], [2.3, "1.4–2.3"], [Infinity, "> 2.3"]] },
  ratio: { kind: "div", key: (v) => v, bins: [
    [0.8, "< 0.8, outside the clip"], [0.98, "0.8–0.98"], [1.02, "about 1"], [1.28, "1.02–1.28"], [Infinity, "> 1.28, outside the clip"]] },
  advantage: { kind: "div", key: (v) => v, bins: [
    [-1, "< −1"], [-0.05, "−1 to −0.05"], [0.05, "about 0"], [1, "0.05 to 1"], [Infinity, "> 1"]] },
};

const HELP = [
  ["← →", "token"], ["↑ ↓", "row"], ["Shift + ← →", "select"], ["Home End", "first, last"],
  ["n p", "next, previous policy run"], ["d", "next divergence"], ["i", "next image"],
  ["Enter", "unfold the image"], ["[ ]", "turn back, on"], ["Space", "play, pause"],
  ["/", "search (#id finds an id)"], ["c", "copy ids"],
];

// ---------------------------------------------------------------- small DOM helpers

function el(tag, className = "", text = null, attributes = {}) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== null) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// Everything that can take the focus is made here: JupyterLab's shortcuts look at the focused
// element itself, and without the attribute an "a" typed here adds a cell.
function focusable(tag, className, text, attributes = {}) {
  return el(tag, className, text, { "data-lm-suppress-shortcuts": "true", ...attributes });
}

function button(text, title, onClick) {
  const node = focusable("button", "", text, { type: "button", title });
  node.addEventListener("click", onClick);
  return node;
}

function svg(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function option(value, text) {
  return el("option", "", text, { value });
}

// ---------------------------------------------------------------- text and numbers

function count(n, noun) {
  return `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
}

function number(value, digits = 4) {
  return value === null || value === undefined ? "not measured" : value.toFixed(digits).replace("-", "−");
}

// ---------------------------------------------------------------- the data of one member

class Member {
  constructor(data, payload) {
    Object.assign(this, data);
    this.vocab = payload.vocab;
    this.visible = payload.shown ?? {};
    this.thinking = new Uint8Array(data.ids.length);
    for (const [start, end] of data.thoughts ?? []) this.thinking.fill(1, start, end);
    this.total = data.ids.length;
    this.starts = data.segments.map((segment) => segment[1]);
    const turns = data.segments.map((segment) => segment[3]);
    this.firstTurn = Math.min(...turns); // a sequence that starts over begins later than turn 0
    this.turns = Math.max(...turns) + 1;
    this.rank = new Int32Array(this.total).fill(-1); // position among the trained tokens
    let next = 0;
    for (const [start, end] of data.mask) for (let i = start; i < end; i++) this.rank[i] = next++;
  }

  text(i) { return this.vocab[this.ids[i]]; }

  shown(i) { return this.visible[this.ids[i]] ?? this.text(i); }

  segment(i) { // index of the segment that holds token i
    let low = 0, high = this.starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.starts[middle] <= i) low = middle; else high = middle - 1;
    }
    return low;
  }

  value(key, i) { // a number, null (not measured) or undefined (not trained)
    if (this.rank[i] < 0) return undefined;
    return this.values[key] ? this.values[key][this.rank[i]] : null;
  }

  searchText() { // lower-cased text with the offset of each token; an image token is one mark
    if (!this.index) {
      const offsets = new Int32Array(this.total + 1), parts = new Array(this.total);
      const lower = {};
      for (let s = 0; s < this.segments.length; s++) {
        const [role, start, end] = this.segments[s];
        for (let i = start; i < end; i++) {
          const id = this.ids[i];
          parts[i] = role === "image" ? "\ufffc" : (lower[id] ??= this.vocab[id].toLowerCase());
          offsets[i + 1] = offsets[i] + parts[i].length;
        }
      }
      this.index = { text: parts.join(""), offsets };
    }
    return this.index;
  }

  find(query) { // [[first token, one past the last], ...]
    const id = /^#(\d+)$/.exec(query);
    if (id) {
      const hits = [];
      for (let i = 0; i < this.total; i++) if (this.ids[i] === Number(id[1])) hits.push([i, i + 1]);
      return hits;
    }
    const { text, offsets } = this.searchText();
    const hits = [], needle = query.toLowerCase();
    let token = 0;
    for (let at = text.indexOf(needle); at >= 0; at = text.indexOf(needle, at + needle.length)) {
      while (offsets[token + 1] <= at) token++;
      let end = token + 1;
      while (offsets[end] < at + needle.length) end++;
      hits.push([token, end]);
    }
    return hits;
  }

  parts() { // rows: a segment, or a piece of a long one
    const parts = [];
    this.segments.forEach(([role, start, end, turn], segment) => {
      const step = role === "image" ? Math.max(1, end - start) : CHUNK;
      for (let at = start, to; at < end; at = to) {
        const thought = this.thinking[at];
        to = Math.min(end, at + step);
        const change = this.thinking.indexOf(1 - thought, at);
        if (change > at && change < to) to = change; // a thought has a row of its own
        const first = at === start || (role === "policy" && this.thinking[at - 1] !== thought);
        parts.push({ segment, role, turn, thought, start: at, end: to, first });
      }
    });
    return parts;
  }

  divergencesAfter(segment) {
    return this.divergences.map((d, index) => ({ ...d, index })).filter((d) => d.at === segment);
  }

  folds(segment) { // is this a long prompt?
    const [role, start, end] = this.segments[segment];
    if (role !== "prompt") return 0;
    let length = 0;
    for (let i = start; i < end; i++) length += this.text(i).length;
    return length > FOLD ? length : 0;
  }

  imageOfTurn(turn) { // the last image shown at or before that turn's answer
    let found = null;
    this.segments.forEach(([role, , , t], s) => { if (role === "image" && t <= turn) found = s; });
    return found;
  }
}

// ---------------------------------------------------------------- screenshots

// The picture with a cross where the policy clicked. White under colour, so it shows on any screen.
function shot(image, alt) {
  const box = el("div", "cl-shot");
  box.append(el("img", "", null, { src: image.src, alt, width: image.width, height: image.height }));
  if (image.point) {
    const [x, y] = [image.point[0] * image.width, image.point[1] * image.height];
    const r = Math.max(image.width, image.height) * 0.045;
    const path = `M${x - 2 * r} ${y}H${x - r / 2}M${x + r / 2} ${y}H${x + 2 * r}`
      + `M${x} ${y - 2 * r}V${y - r / 2}M${x} ${y + r / 2}V${y + 2 * r}`;
    const drawing = svg("svg", { viewBox: `0 0 ${image.width} ${image.height}`, "aria-hidden": "true" });
    for (const layer of ["cl-halo", "cl-cross"]) {
      drawing.append(svg("path", { d: path, class: layer }));
      drawing.append(svg("circle", { cx: x, cy: y, r, class: layer }));
    }
    box.append(drawing);
  }
  return box;
}

function keyList(keys) {
  const list = el("div", "cl-keys");
  keys.forEach((key) => list.append(el("kbd", "", key)));
  return list;
}

// ---------------------------------------------------------------- one pane: one member's tokens

class Pane {
  constructor(viewer, memberIndex) {
    this.viewer = viewer;
    this.root = el("section", "cl-pane");
    this.observer = null;
    this.show(memberIndex);
  }

  show(memberIndex) {
    const { payload, members } = this.viewer;
    this.memberIndex = memberIndex;
    this.member = members[memberIndex];
    this.current = null;
    this.selection = null;
    this.unfolded = new Set();
    this.opened = new Set(); // long prompts that are shown whole
    this.hits = [];
    this.hitFlags = null;
    this.observer?.disconnect();
    this.sum = el("div", "cl-sum");
    this.sumText = el("span");
    if (members.length > 1) this.sum.append(this.memberSelect(payload.members));
    this.sum.append(this.sumText);
    this.body = focusable("div", "cl-body", null, {
      tabindex: "0", role: "group", "aria-label": `tokens of ${this.member.name}: arrow keys move, n next policy run`,
    });
    this.stage = el("aside", "cl-stage");
    const columns = el("div", "cl-cols");
    columns.append(this.body, this.stage);
    this.root.replaceChildren(this.sum, columns);
    this.makeSections();
    this.listen();
    this.setTurn(Math.min(this.viewer.turn, this.member.turns));
    this.begin();
  }

  // Open where the policy first says something, with the screen that it saw, not at the prompt.
  begin() {
    if (!this.member.mask.length || this.turn <= this.member.firstTurn) return;
    const first = this.member.mask[0][0];
    this.fill(this.sectionAt(first));
    this.showStage(this.member.segments[this.member.segment(first)][3]);
    requestAnimationFrame(() => {
      const row = this.node(first)?.closest(".cl-row");
      if (!row || this.body.scrollTop) return;
      const below = row.getBoundingClientRect().bottom - this.body.getBoundingClientRect().top;
      this.body.scrollTop = Math.max(0, below - this.body.clientHeight * 0.6);
    });
  }

  memberSelect(members) {
    const select = focusable("select", "", null, { "aria-label": "member of the group" });
    members.forEach((m, i) => select.append(option(i, m.name)));
    select.value = String(this.memberIndex);
    select.addEventListener("change", () => {
      this.show(Number(select.value));
      this.viewer.membersChanged();
      this.root.querySelector("select").focus();
    });
    return select;
  }

  // -- sections: filled when they come near

  makeSections() {
    this.sections = [];
    this.sectionOf = [];
    const parts = this.member.parts();
    let section = null;
    for (const part of parts) {
      if (!section || section.weight >= SECTION || section.parts.length >= 24) {
        section = { parts: [], weight: 0, filled: false, node: el("div", "cl-section") };
        section.start = part.start;
        section.node.section = section;
        this.sections.push(section);
      }
      section.parts.push(part);
      section.weight += part.role === "image" ? 20 : part.end - part.start;
    }
    for (const section of this.sections) {
      // 14 tokens a line of 23 px is what English through a BPE gives; the browser corrects it later.
      const height = Math.round(section.parts.length * 30 + (section.weight / 14) * 23);
      section.node.style.containIntrinsicSize = `auto ${height}px`;
      section.node.style.minHeight = `${height}px`;
    }
    this.body.replaceChildren(...this.sections.map((s) => s.node));
    this.observer = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) this.fill(entry.target.section);
    }, { root: this.body, rootMargin: "900px 0px" });
    this.sections.forEach((s) => this.observer.observe(s.node));
    if (this.sections.length) this.fill(this.sections[0]);
  }

  fill(section) {
    if (section.filled) return;
    section.filled = true;
    this.observer.unobserve(section.node);
    section.node.style.minHeight = "";
    for (const part of section.parts) {
      section.node.append(this.row(part));
      const last = part.end === this.member.segments[part.segment][2];
      if (last) for (const d of this.member.divergencesAfter(part.segment)) section.node.append(this.divergence(d));
    }
    this.hideLater(section);
  }

  sectionAt(i) {
    let low = 0, high = this.sections.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.sections[middle].start <= i) low = middle; else high = middle - 1;
    }
    return this.sections[low];
  }

  row(part) {
    const row = el("div", "cl-row");
    row.dataset.turn = part.turn;
    const previous = this.member.segments[part.segment - 1];
    if (part.first && (!previous || previous[3] !== part.turn)) row.classList.add("cl-turnstart");
    const gutter = el("div", "cl-gutter");
    if (part.first) {
      const length = this.member.segments[part.segment][2] - part.start;
      const name = part.thought ? "thought" : ROLES[part.role];
      gutter.append(el("b", "", name), `turn ${part.turn} · ${part.role === "policy" ? part.end - part.start : length}`);
    }
    const tokens = el("div", "cl-toks");
    if (part.role === "image") tokens.append(this.chip(part)); else this.appendTokens(tokens, part);
    row.append(gutter, tokens);
    const folds = this.member.folds(part.segment);
    if (folds && !this.opened.has(part.segment)) this.fold(row, part, folds);
    return row;
  }

  fold(row, part, characters) { // a long prompt: its first lines, and a button for the rest
    row.classList.add("cl-folded");
    row.dataset.segment = part.segment;
    if (!part.first) { row.classList.add("cl-rest"); return; }
    const [, start, end] = this.member.segments[part.segment];
    const open = focusable("button", "cl-open", `show all: ${count(characters, "character")}, ${count(end - start, "token")}`, { type: "button" });
    open.addEventListener("click", () => { this.open(part.segment); this.body.focus({ preventScroll: true }); });
    row.append(open);
  }

  open(segment) { // show a long prompt whole
    if (this.opened.has(segment) || !this.member.folds(segment)) return;
    this.opened.add(segment);
    for (const row of this.body.querySelectorAll(`.cl-folded[data-segment="${segment}"]`)) {
      row.classList.remove("cl-folded", "cl-rest");
      row.querySelector(".cl-open")?.remove();
    }
  }

  appendTokens(parent, part) {
    const fragment = document.createDocumentFragment();
    for (let i = part.start; i < part.end; i++) {
      const text = this.member.text(i);
      const token = el("span", this.tokenClass(part.role, i), this.member.shown(i));
      token.dataset.i = i;
      fragment.append(token);
      if (text.endsWith("\n")) fragment.append(el("br"));
    }
    parent.append(fragment);
  }

  tokenClass(role, i) {
    const mode = this.viewer.mode;
    let name = `cl-t cl-${role}`;
    if (this.member.thinking[i]) name += " cl-thought";
    if (role === "policy" && this.member.rank[i] < 0) name += " cl-untrained";
    if (mode !== "role") {
      const value = this.member.value(mode, i);
      name = "cl-t cl-v";
      if (value === null) name += " cl-none";
      else if (value !== undefined) name += ` cl-${SCALES[mode].kind}${bin(mode, value)}`;
    }
    if (this.hitFlags?.[i]) name += " cl-hit";
    if (this.selection && i >= this.selection[0] && i < this.selection[1]) name += " cl-sel";
    return i === this.current ? name + " cl-cur" : name;
  }

  repaint() {
    for (const section of this.sections) {
      if (!section.filled) continue;
      for (const token of section.node.querySelectorAll("[data-i]")) {
        const i = Number(token.dataset.i);
        if (token.classList.contains("cl-chip")) token.classList.toggle("cl-cur", i === this.current);
        else token.className = this.tokenClass(this.member.segments[this.member.segment(i)][0], i);
      }
    }
  }

  // -- image chips

  chip(part) {
    const image = this.member.images[part.segment];
    const n = part.end - part.start;
    const holder = el("div");
    const chip = focusable("button", "cl-chip", null, { type: "button", "aria-expanded": "false" });
    chip.dataset.i = part.start;
    chip.dataset.segment = part.segment;
    if (image) chip.append(el("img", "", null, { src: image.src, alt: "" }));
    const size = image ? `, ${image.width} × ${image.height} px` : ", picture not given";
    const action = image?.label ? ` → ${image.label}` : "";
    chip.append(`▣ ${count(n, "image token")}${size}${action}`);
    chip.addEventListener("click", () => this.toggleImage(part.segment));
    holder.append(chip);
    if (this.unfolded.has(part.segment)) this.unfold(chip);
    return holder;
  }

  toggleImage(segment) {
    const chip = this.body.querySelector(`.cl-chip[data-segment="${segment}"]`);
    if (this.unfolded.delete(segment)) {
      chip.setAttribute("aria-expanded", "false");
      chip.nextSibling?.remove();
    } else if (this.member.images[segment]) {
      this.unfolded.add(segment);
      this.unfold(chip);
    }
  }

  unfold(chip) {
    const image = this.member.images[chip.dataset.segment];
    const large = el("div", "cl-unfold");
    large.append(shot(image, `screenshot, ${image.label || "no action"}`));
    if (image.keys.length) large.append(keyList(image.keys));
    chip.setAttribute("aria-expanded", "true");
    chip.after(large);
    large.scrollIntoView({ block: "nearest" });
  }

  // -- divergence rows

  divergence(d) {
    const node = el("div", "cl-diverge");
    node.dataset.turn = d.turn;
    node.dataset.divergence = d.index;
    node.append(el("b", "", `Divergence, ${d.kind.replace("_", " ")}`), ` — ${d.why}`);
    const pair = el("div", "cl-pair");
    const { visible } = this.member;
    pair.append(el("span", "", "emitted"), tokenList(d.emitted, d.rendered, visible));
    pair.append(el("span", "", "re-rendered"), tokenList(d.rendered, d.emitted, visible));
    node.append(pair);
    return node;
  }

  // -- turns

  setTurn(turn) { // show turns before `turn`; at the first turn's number only what was given
    this.turn = turn;
    this.sections.forEach((section) => this.hideLater(section));
    this.showSum();
    this.showStage();
  }

  later(turn, role = "policy") { // hidden at the present slider position?
    const answer = role === "policy" || role === "resynced";
    if (this.turn <= this.member.firstTurn) return turn !== this.member.firstTurn || answer;
    return turn >= this.turn;
  }

  hideLater(section) {
    if (!section.filled) {
      section.node.hidden = section.parts.every((p) => this.later(p.turn, p.role));
      return;
    }
    section.node.hidden = false;
    let part = 0, hidden = 0;
    for (const node of section.node.children) {
      const role = node.classList.contains("cl-row") ? section.parts[part++].role : "policy";
      node.hidden = this.later(Number(node.dataset.turn), role);
      hidden += node.hidden;
    }
    section.node.hidden = hidden > 0 && hidden === section.node.children.length;
  }

  shownTokens() {
    return this.member.segments.reduce(
      (sum, [role, start, end, turn]) => sum + (this.later(turn, role) ? 0 : end - start), 0);
  }

  showSum() {
    const { counts, total, reward, status, name } = this.member;
    const roles = Object.keys(ROLES).filter((role) => counts[role]).map((role) => `${counts[role].toLocaleString("en")} ${role}`);
    const shown = this.shownTokens();
    const parts = [
      `${roles.join(" + ")} = ${count(total, "token")}`,
      `trained ${counts.trained.toLocaleString("en")} (${total ? Math.round((100 * counts.trained) / total) : 0} %)`,
      count(counts.images, "image"), count(counts.turns, "turn"), count(this.member.divergences.length, "divergence"),
    ];
    if (reward !== null) parts.push(`reward ${number(reward, 3)}`);
    if (status) parts.push(status);
    if (shown !== total) parts.push(`shown ${shown.toLocaleString("en")}`);
    const label = el("b", "", this.viewer.members.length > 1 ? "" : `${name}: `);
    this.sumText.replaceChildren(label, parts.join(" · "));
  }

  showStage(asked = null) { // the screen of the turn asked for, or else of the slider's
    const started = this.turn > this.member.firstTurn;
    const turn = asked !== null && started ? Math.min(asked, this.turn - 1)
      : started ? this.turn - 1 : this.member.firstTurn;
    if (this.staged === `${turn} ${started}`) return;
    this.staged = `${turn} ${started}`;
    const segment = this.member.imageOfTurn(turn);
    const image = segment === null ? null : this.member.images[segment];
    this.stage.hidden = !image;
    if (!image) return;
    // At the first position the policy has not acted yet: the same screen without the mark.
    const seen = started ? image : { ...image, point: null, keys: [], label: "" };
    const words = el("div");
    const what = started ? `turn ${turn}: ${image.label || "no screen action"}` : `before turn ${turn}`;
    words.append(el("p", "", what));
    if (seen.keys.length) words.append(keyList(seen.keys));
    this.stage.replaceChildren(shot(seen, `what the policy saw, ${what}`), words);
  }

  // -- moving about

  listen() {
    this.body.addEventListener("mouseover", (event) => {
      const token = event.target.closest("[data-i]");
      if (token) this.viewer.showDetail(this, Number(token.dataset.i));
    });
    this.body.addEventListener("mouseleave", () => {
      if (this.current !== null) this.viewer.showDetail(this, this.current);
    });
    this.body.addEventListener("click", (event) => {
      const token = event.target.closest(".cl-t[data-i]");
      if (token) this.moveTo(Number(token.dataset.i), { extend: event.shiftKey, scroll: false });
    });
    this.body.addEventListener("focusin", (event) => {
      this.viewer.active = this;
      const chip = event.target.closest(".cl-chip");
      if (chip) this.viewer.showDetail(this, Number(chip.dataset.i));
      else if (this.current === null && this.member.total) this.moveTo(0, { scroll: false });
    });
    this.body.addEventListener("keydown", (event) => this.onKey(event));
    this.body.addEventListener("scroll", () => this.viewer.scrolled(this));
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const onChip = event.target.closest(".cl-chip");
    if (onChip && (event.key === "Enter" || event.key === " ")) return; // the button's own
    const i = this.current ?? 0;
    const actions = {
      ArrowRight: () => this.step(1, event.shiftKey), ArrowLeft: () => this.step(-1, event.shiftKey),
      ArrowDown: () => this.stepRow(1), ArrowUp: () => this.stepRow(-1),
      Home: () => this.moveTo(0), End: () => this.moveTo(this.lastShown()),
      n: () => this.jumpRun(1), p: () => this.jumpRun(-1),
      d: () => this.jumpDivergence(), i: () => this.jumpImage(),
      Enter: () => this.toggleAtCurrent(i), " ": () => this.viewer.togglePlay(),
      "[": () => this.viewer.stepTurn(-1), "]": () => this.viewer.stepTurn(1),
      "/": () => this.viewer.search.focus(), c: () => this.viewer.copyIds(),
      Escape: () => this.select(null),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }

  toggleAtCurrent(i) {
    const segment = this.member.segment(i);
    if (this.member.segments[segment][0] === "image") this.toggleImage(segment);
  }

  step(by, extend) {
    const { member } = this;
    let next = (this.current ?? 0) + by;
    const here = member.segments[member.segment(this.current ?? 0)];
    if (here[0] === "image") next = by > 0 ? here[2] : here[1] - 1; // an image is one step
    const landed = member.segments[member.segment(Math.min(Math.max(next, 0), member.total - 1))];
    if (landed[0] === "image") next = landed[1];
    this.moveTo(next, { extend });
  }

  stepRow(by) {
    const segment = this.member.segment(this.current ?? 0) + by;
    if (this.member.segments[segment]) this.moveTo(this.member.segments[segment][1]);
  }

  lastShown() {
    let last = 0;
    for (const [role, , end, turn] of this.member.segments) if (!this.later(turn, role)) last = Math.max(last, end - 1);
    return last;
  }

  jumpRun(by) {
    const runs = this.member.mask, at = this.current ?? -1;
    const run = by > 0 ? runs.find(([start]) => start > at) : runs.findLast(([start]) => start < at);
    if (run) this.moveTo(run[0]); else this.viewer.say(by > 0 ? "no policy run after this one" : "no policy run before this one");
  }

  jumpDivergence() {
    const { divergences, segments } = this.member;
    if (!divergences.length) return this.viewer.say("no divergence in this episode");
    this.divergenceAt = ((this.divergenceAt ?? -1) + 1) % divergences.length;
    const d = divergences[this.divergenceAt];
    this.moveTo(segments[d.at][2] - 1);
    const node = this.body.querySelector(`[data-divergence="${this.divergenceAt}"]`);
    this.body.querySelector(".cl-diverge.cl-cur")?.classList.remove("cl-cur");
    node?.classList.add("cl-cur");
    node?.scrollIntoView({ block: "nearest" });
    this.viewer.say(`divergence ${this.divergenceAt + 1} of ${divergences.length}: ${d.kind.replace("_", " ")}`);
  }

  jumpImage() {
    const images = this.member.segments.filter(([role]) => role === "image");
    if (!images.length) return this.viewer.say("no image in this episode");
    const next = images.find(([, start]) => start > (this.current ?? -1)) ?? images[0];
    this.moveTo(next[1]);
  }

  moveTo(target, { extend = false, scroll = true } = {}) {
    const i = Math.min(Math.max(target, 0), this.member.total - 1);
    if (i < 0) return;
    const before = this.current;
    const segment = this.member.segments[this.member.segment(i)];
    if (this.later(segment[3], segment[0])) this.viewer.setTurn(segment[3] + 1);
    this.fill(this.sectionAt(i));
    if (extend && before !== null) {
      this.anchor ??= before;
      this.select([Math.min(this.anchor, i), Math.max(this.anchor, i) + 1]);
    } else {
      this.anchor = null;
      if (this.selection) this.select(null);
    }
    this.current = i;
    for (const node of this.nodes(before, i)) this.refresh(node);
    this.open(this.member.segment(i));
    if (scroll) this.node(i)?.scrollIntoView({ block: "nearest" });
    this.showStage(segment[3]);
    this.viewer.showDetail(this, i);
  }

  // -- the turn at the top, for panes that scroll together

  topOfTurn(turn) { // where this turn's first row begins, or null where it is not shown
    const segment = this.member.segments.findIndex(([, , , t]) => t >= turn);
    if (segment < 0) return null;
    this.fill(this.sectionAt(this.member.segments[segment][1]));
    const row = [...this.body.querySelectorAll(`.cl-row[data-turn="${this.member.segments[segment][3]}"]`)].find((r) => !r.hidden);
    return row ? row.getBoundingClientRect().top - this.body.getBoundingClientRect().top + this.body.scrollTop : null;
  }

  turnAtTop() { // [turn, pixels of it that are scrolled away]
    const top = this.body.getBoundingClientRect().top;
    for (const section of this.sections) {
      if (section.node.hidden || section.node.getBoundingClientRect().bottom <= top + 1) continue;
      this.fill(section);
      for (const row of section.node.children) {
        if (row.hidden || row.getBoundingClientRect().bottom <= top + 1) continue;
        const turn = Number(row.dataset.turn), start = this.topOfTurn(turn);
        return [turn, start === null ? 0 : this.body.scrollTop - start];
      }
    }
    return null;
  }

  node(i) { return this.body.querySelector(`[data-i="${i}"]`); }

  nodes(...positions) { return positions.map((i) => (i === null ? null : this.node(i))).filter(Boolean); }

  refresh(node) {
    const i = Number(node.dataset.i);
    if (node.classList.contains("cl-chip")) node.classList.toggle("cl-cur", i === this.current);
    else node.className = this.tokenClass(this.member.segments[this.member.segment(i)][0], i);
  }

  select(range) {
    this.selection = range;
    this.repaint();
  }

  setHits(hits) {
    this.hits = hits;
    this.hitFlags = hits.length ? new Uint8Array(this.member.total) : null;
    for (const [start, end] of hits) this.hitFlags.fill(1, start, end);
    this.repaint();
  }

  idsToCopy() { // the selection, or else the segment the current token is in
    if (this.selection) return this.member.ids.slice(...this.selection);
    const [, start, end] = this.member.segments[this.member.segment(this.current ?? 0)];
    return this.member.ids.slice(start, end);
  }

  close() { this.observer?.disconnect(); }
}

function bin(mode, value) {
  const { key, bins } = SCALES[mode];
  return bins.findIndex(([bound]) => key(value) < bound);
}

// Tokens of one side of a divergence; those not shared at the ends stand out.
function tokenList(tokens, other, visible) {
  let head = 0, tail = 0;
  const shorter = Math.min(tokens.length, other.length);
  while (head < shorter && tokens[head][0] === other[head][0]) head++;
  while (tail < shorter - head && tokens.at(-1 - tail)[0] === other.at(-1 - tail)[0]) tail++;
  const list = el("div");
  tokens.forEach(([id, text], i) => {
    const differs = i >= head && i < tokens.length - tail;
    const token = el("span", differs ? "cl-t cl-differs" : "cl-t", visible[id] ?? text);
    token.append(el("small", "", String(id)));
    list.append(token);
  });
  if (!tokens.length) list.append("nothing");
  return list;
}

// ---------------------------------------------------------------- the viewer: tools and panes

class Viewer {
  constructor(root, payload) {
    this.payload = payload;
    this.members = payload.members.map((member) => new Member(member, payload));
    this.firstTurn = Math.min(...this.members.map((member) => member.firstTurn));
    this.turns = Math.max(...this.members.map((member) => member.turns));
    this.turn = this.turns;
    this.mode = "role";
    this.timer = null;
    this.root = root;
    root.classList.add("cua-viewer");
    root.setAttribute("data-lm-suppress-shortcuts", "true");
    root.tabIndex = -1; // a click beside the controls keeps the keys here
    root.addEventListener("keydown", (event) => this.onKey(event));
    this.detail = el("div", "cl-detail", null, { role: "status", "aria-live": "polite" });
    this.legend = el("div", "cl-legend");
    this.panesRoot = el("div", "cl-panes");
    root.replaceChildren(this.head(), this.legend, this.panesRoot, this.foot());
    this.panes = [];
    this.addPane(0);
    this.active = this.panes[0];
    this.showLegend();
    this.setTurn(this.turns);
    this.panes[0].begin();
    this.say("Hover or focus a token; Tab reaches the tokens, arrow keys move.");
  }

  head() {
    const head = el("div", "cl-head");
    head.append(el("div", "cl-title", this.payload.title, { role: "heading", "aria-level": "3" }));
    const tools = el("div", "cl-tools");
    tools.append(this.turnTools(), this.colourTools(), this.searchTools(), this.jumpTools());
    head.append(tools);
    return head;
  }

  turnTools() {
    const group = el("div", "cl-group cl-turns");
    this.playButton = button("▶ play", "step through the turns", () => this.togglePlay());
    this.slider = focusable("input", "", null, {
      type: "range", min: String(this.firstTurn), max: String(this.turns), step: "1", "aria-label": "turn",
    });
    this.slider.addEventListener("input", () => this.setTurn(Number(this.slider.value)));
    this.turnLabel = el("output");
    group.append(this.playButton, this.slider, this.turnLabel);
    return group;
  }

  colourTools() {
    const group = el("label", "cl-group", "colour by");
    this.colour = focusable("select", "", null, {});
    ["role", ...Object.keys(SCALES)].forEach((mode) => this.colour.append(option(mode, mode)));
    this.colour.addEventListener("change", () => this.setMode(this.colour.value));
    group.append(this.colour);
    return group;
  }

  searchTools() {
    const group = el("div", "cl-group cl-find");
    this.search = focusable("input", "", null, { type: "search", placeholder: "search text or #id", "aria-label": "search tokens" });
    this.found = el("output", "", "");
    this.search.addEventListener("input", () => this.find());
    this.search.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") { event.preventDefault(); this.nextHit(event.shiftKey ? -1 : 1); }
      if (event.key === "Escape") { this.search.value = ""; this.find(); this.active.body.focus(); }
    });
    group.append(this.search, button("next", "next hit (Enter)", () => this.nextHit(1)), this.found);
    return group;
  }

  jumpTools() {
    const group = el("div", "cl-group");
    const at = (method, ...args) => () => { this.active[method](...args); this.active.body.focus({ preventScroll: true }); };
    group.append(button("next policy run", "n", at("jumpRun", 1)), button("next divergence", "d", at("jumpDivergence")));
    this.copyButton = button("copy ids", "ids of the selection, or of this segment (c)", () => this.copyIds());
    group.append(this.copyButton);
    if (this.members.length > 1) {
      this.compareButton = button("compare", "two members side by side", () => this.toggleCompare());
      this.compareButton.setAttribute("aria-pressed", "false");
      group.append(this.compareButton);
    }
    return group;
  }

  foot() {
    const foot = el("div", "cl-foot");
    const help = el("details", "cl-help");
    const list = el("div");
    for (const [keys, what] of HELP) {
      const line = el("p");
      keys.split(" ").forEach((key) => line.append(key === "+" ? " + " : el("kbd", "", key), " "));
      line.append(what);
      list.append(line);
    }
    help.append(focusable("summary", "", "keys"), list);
    foot.append(this.detail, help);
    return foot;
  }

  addPane(member) {
    const pane = new Pane(this, member);
    this.panes.push(pane);
    this.panesRoot.append(pane.root);
  }

  toggleCompare() {
    if (this.panes.length === 2) {
      const last = this.panes.pop();
      last.close();
      last.root.remove();
      this.active = this.panes[0];
    } else {
      this.addPane((this.panes[0].memberIndex + 1) % this.members.length);
    }
    this.panesRoot.classList.toggle("cl-two", this.panes.length === 2);
    this.compareButton.setAttribute("aria-pressed", String(this.panes.length === 2));
    this.membersChanged();
  }

  membersChanged() {
    this.active = this.panes.includes(this.active) ? this.active : this.panes[0];
    this.showLegend();
    if (this.search.value) this.find();
  }

  // Jumps work from every control but the search field; arrows and Space stay the control's own.
  onKey(event) {
    const jump = !event.ctrlKey && !event.metaKey && !event.altKey && event.target !== this.search;
    if (jump && "npdi[]/c".includes(event.key)) this.active.onKey(event);
    event.stopPropagation();
  }

  // -- panes side by side scroll together, turn by turn

  scrolled(pane) {
    if (this.panes.length < 2 || this.following) return;
    this.following = true;
    requestAnimationFrame(() => {
      const at = pane.turnAtTop(), other = this.panes.find((p) => p !== pane);
      const start = at && other ? other.topOfTurn(at[0]) : null;
      if (start !== null) {
        const end = other.topOfTurn(at[0] + 1) ?? Infinity;
        other.body.scrollTop = Math.min(start + at[1], Math.max(start, end - 1));
      }
      requestAnimationFrame(() => { this.following = false; }); // after the other's own event
    });
  }

  // -- turns

  setTurn(turn) {
    this.turn = Math.min(Math.max(turn, this.firstTurn), this.turns);
    this.slider.value = String(this.turn);
    const last = this.turns - 1;
    this.turnLabel.textContent = this.turn === this.firstTurn ? "the first prompt"
      : `turn ${this.turn - 1} (last: ${last})`;
    this.panes.forEach((pane) => pane.setTurn(Math.min(this.turn, pane.member.turns)));
  }

  stepTurn(by) {
    this.setTurn(this.turn + by);
    this.panes.forEach((pane) => pane.body.scrollTo({ top: pane.body.scrollHeight }));
  }

  togglePlay() {
    if (this.timer) return this.pause();
    if (this.turn >= this.turns) this.setTurn(this.firstTurn);
    this.playButton.textContent = "❚❚ pause";
    this.timer = setInterval(() => {
      this.stepTurn(1);
      if (this.turn >= this.turns) this.pause();
    }, PLAY_MS);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.playButton.textContent = "▶ play";
  }

  // -- colours

  setMode(mode) {
    this.mode = mode;
    this.colour.value = mode;
    this.panes.forEach((pane) => pane.repaint());
    this.showLegend();
  }

  showLegend() {
    const entries = this.mode === "role" ? this.roleLegend() : this.scaleLegend();
    this.legend.replaceChildren(...entries.map(([className, mark, text]) => {
      const entry = el("span");
      entry.append(el("span", `cl-t cl-swatch ${className}`, mark), text);
      return entry;
    }));
  }

  roleLegend() {
    const entries = Object.keys(ROLES).map((role) => [`cl-${role}`, "abc", `${ROLES[role]}: ${ROLE_WORDS[role]}`]);
    if (this.members.some((member) => member.thoughts?.length)) entries.splice(2, 0, ["cl-policy cl-thought", "abc", `thought: ${THOUGHT}`]);
    return entries;
  }

  scaleLegend() { // each bin with the number of tokens in it; the numbers sum to the trained tokens
    const { kind, bins } = SCALES[this.mode];
    const tally = new Array(bins.length + 1).fill(0);
    for (const { member } of this.panes) {
      const column = member.values[this.mode];
      if (!column) { tally[bins.length] += member.counts.trained; continue; }
      for (const value of column) tally[value === null ? bins.length : bin(this.mode, value)]++;
    }
    const entries = bins.map(([, label], b) => [`cl-v cl-${kind}${b}`, "abc", `${label}: ${tally[b].toLocaleString("en")}`]);
    if (tally[bins.length]) entries.push(["cl-v cl-none", "abc", `not measured: ${tally[bins.length].toLocaleString("en")}`]);
    entries.push(["cl-v", "abc", "not trained"]);
    return entries;
  }

  // -- search

  find() {
    const query = this.search.value;
    this.panes.forEach((pane) => pane.setHits(query ? pane.member.find(query) : []));
    this.hit = -1;
    if (!query) this.found.textContent = "";
    else this.nextHit(1);
  }

  nextHit(by) {
    const hits = this.panes.flatMap((pane) => pane.hits.map((hit) => [pane, hit]));
    if (!hits.length) { this.found.textContent = this.search.value ? "no hit" : ""; return; }
    this.hit = (this.hit + by + hits.length) % hits.length;
    const [pane, [start]] = hits[this.hit];
    this.found.textContent = `${this.hit + 1} of ${hits.length.toLocaleString("en")}`;
    this.active = pane;
    pane.moveTo(start);
  }

  // -- details, copying, messages

  showDetail(pane, i) {
    const { member } = pane;
    const [role, start, end, turn, weights] = member.segments[member.segment(i)];
    const field = (name, value) => {
      const node = el("span");
      node.append(el("i", "", name), value);
      return node;
    };
    const fields = role === "image"
      ? [field("image", count(end - start, "token")), field("positions", `${start}–${end - 1}`)]
      : [field("text", el("code", "", member.shown(i))), field("position", `${i} of ${member.total}`)];
    fields.unshift(field("id", String(member.ids[i])));
    fields.push(field("turn", String(turn)), field("who", `${role}, ${member.rank[i] < 0 ? "mask 0" : "mask 1"}${member.thinking[i] ? ", thought" : ""}`));
    if (member.rank[i] >= 0) {
      const logprob = member.value("logprob", i);
      const chance = logprob === null ? "" : ` (p ${Math.exp(logprob).toPrecision(3)})`;
      fields.push(field("logprob", number(logprob) + chance));
      for (const key of ["entropy", "advantage", "ratio"]) fields.push(field(key, number(member.value(key, i))));
    }
    if (weights !== null) fields.push(field("weights", weights));
    this.detail.replaceChildren(...fields);
  }

  say(text) { this.detail.replaceChildren(el("span", "", text)); }

  async copyIds() {
    const ids = this.active.idsToCopy();
    const text = `[${ids.join(", ")}]`;
    try {
      await navigator.clipboard.writeText(text);
    } catch { // no permission, or not a secure page: the old way
      const area = focusable("textarea", "", null, {});
      area.value = text;
      this.root.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      this.active.body.focus({ preventScroll: true });
    }
    this.say(`${count(ids.length, "id")} copied`);
  }

  close() {
    clearInterval(this.timer);
    this.panes.forEach((pane) => pane.close());
  }
}

// ---------------------------------------------------------------- the two homes

export function mount(root, payload) {
  return new Viewer(root, payload);
}

// On a standalone page: every <div data-viewer="ID"> shows the JSON in <script id="ID">.
export function boot() {
  for (const root of document.querySelectorAll("[data-viewer]")) {
    mount(root, JSON.parse(document.getElementById(root.dataset.viewer).textContent));
  }
}

export default {
  render({ model, el: root }) {
    const holder = el("div");
    root.append(holder);
    const viewer = mount(holder, model.get("payload"));
    return () => viewer.close();
  },
};
