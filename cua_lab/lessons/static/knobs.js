// Knobs: one idea each as sliders and a drawing. The model gives `kind` and `values`; all numbers are
// computed here, by the functions below, which a test compares with the package's own.
export const formulas = {
  // PPO's clipped loss of one token, and its push: minus the derivative by the log-probability.
  loss: (r, a, low, high) => -Math.min(r * a, Math.min(Math.max(r, 1 - low), 1 + high) * a),
  push: (r, a, low, high) => ((a > 0 && r > 1 + high) || (a < 0 && r < 1 - low) ? 0 : r * a),
  advantages(rewards) {
    const mean = rewards.reduce((x, y) => x + y, 0) / rewards.length;
    const std = Math.sqrt(rewards.reduce((x, y) => x + (y - mean) ** 2, 0) / rewards.length);
    return rewards.map((r) => (std > 1e-9 ? (r - mean) / std : 0));
  },
  silent: (p, members) => p ** members + (1 - p) ** members,
  imageTokens: (width, height) => Math.round(width / 32) * Math.round(height / 32),
  reward(x, y, [left, top, right, bottom], side) {
    const dx = Math.max(left - x, 0, x - (right - 1)), dy = Math.max(top - y, 0, y - (bottom - 1));
    return dx || dy ? 0.5 * Math.exp((-4 * Math.hypot(dx, dy)) / side) : 1;
  },
  // The best policy for a reward of 1 or 0 under a KL weight: reference times exp(reward / weight).
  drifted: (p, weight) => 1 / (1 + ((1 - p) / p) * Math.exp(-1 / weight)),
  kl: (q, p) => q * Math.log(q / p) + (q < 1 ? (1 - q) * Math.log((1 - q) / (1 - p)) : 0),
};
const F = formulas, SVG = "http://www.w3.org/2000/svg", W = 420, H = 230, PAD = 34;

function make(tag, attributes = {}, text = "") {
  const svg = ["svg", "path", "line", "circle", "rect", "text", "g"].includes(tag);
  const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return node;
}
const two = (x) => (x < -0.005 ? "−" : "") + Math.abs(x).toFixed(2);
const signed = (x) => (Math.abs(x) < 0.005 ? "0.00" : (x > 0 ? "+" : "") + two(x));

// A drawing area with axes from (x0, y0) to (x1, y1); at(x, y) is a place on it, back() its inverse.
function area(x0, x1, y0, y1, label) {
  const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label });
  const sx = (x) => PAD + ((x - x0) / (x1 - x0)) * (W - 2 * PAD);
  const sy = (y) => H - PAD - ((y - y0) / (y1 - y0)) * (H - 2 * PAD);
  const back = (event) => {
    const box = svg.getBoundingClientRect();
    const px = ((event.clientX - box.left) / box.width) * W, py = ((event.clientY - box.top) / box.height) * H;
    return [x0 + ((px - PAD) / (W - 2 * PAD)) * (x1 - x0), y0 + ((H - PAD - py) / (H - 2 * PAD)) * (y1 - y0)];
  };
  const path = (points, name) => make("path", {
    class: name, d: points.map(([x, y], i) => `${i ? "L" : "M"}${sx(x).toFixed(1)} ${sy(y).toFixed(1)}`).join(""),
  });
  const words = (x, y, text, anchor = "middle") => make("text", { x, y, "text-anchor": anchor }, text);
  const frame = (across, up) => [
    make("path", { class: "axis", d: `M${PAD} ${PAD}V${H - PAD}H${W - PAD}` }),
    words(W / 2, H - 6, across), words(PAD, 20, up, "start"),
    words(PAD, H - PAD + 14, `${x0}`), words(W - PAD, H - PAD + 14, `${x1}`),
  ];
  return { svg, sx, sy, back, path, words, frame };
}
const range = (a, b, n = 96) => Array.from({ length: n + 1 }, (_, i) => a + ((b - a) * i) / n);

// Each kind: its sliders [name, label, least, most, step], and draw(values, set) -> [svg, sentence].
export const kinds = {
  clip: {
    sliders: [["ratio", "ratio", 0.3, 2, 0.01], ["advantage", "advantage", -2, 2, 0.1],
      ["low", "ε low", 0, 0.9, 0.01], ["high", "ε high", 0, 0.9, 0.01]],
    draw({ ratio, advantage, low, high }, set) {
      const of = (r) => F.loss(r, advantage, low, high);
      const a = area(0.3, 2, -4, 4, "loss of a token against its ratio; drag the dot");
      a.svg.append(...a.frame("ratio: probability now / when sampled", "loss"),
        a.path(range(0.3, 2).map((r) => [r, -r * advantage]), "free"),
        a.path(range(0.3, 2).map((r) => [r, of(r)]), "line"),
        make("circle", { class: "dot", cx: a.sx(ratio), cy: a.sy(of(ratio)), r: 8 }));
      drag(a, ([x]) => set({ ratio: x }));
      const push = F.push(ratio, advantage, low, high);
      const why = push === 0 ? (advantage ? "held by the clip" : "no advantage") : push > 0 ? "likelier" : "rarer";
      return [a.svg, `loss ${signed(of(ratio))}, push ${signed(push)}: ${why}`];
    },
  },
  advantages: {
    sliders: [],
    draw({ rewards }, set) {
      const n = rewards.length, values = F.advantages(rewards);
      const a = area(0, n, 0, 1, "rewards of a group, dots to drag");
      a.svg.append(...a.frame("members of a group", "reward: drag a dot"));
      rewards.forEach((r, i) => a.svg.append(
        make("line", { class: "free", x1: a.sx(i + 0.5), x2: a.sx(i + 0.5), y1: a.sy(0), y2: a.sy(1) }),
        make("circle", { class: "dot", cx: a.sx(i + 0.5), cy: a.sy(r), r: 8 }),
        a.words(a.sx(i + 0.5), a.sy(r) - 13, signed(values[i]))));
      drag(a, ([x, y]) => {
        const i = Math.min(n - 1, Math.max(0, Math.floor(x)));
        set({ rewards: rewards.map((r, k) => (k === i ? Math.round(20 * Math.min(1, Math.max(0, y))) / 20 : r)) });
      });
      const silent = values.every((v) => v === 0);
      return [a.svg, silent ? "all equal: a silent group" : `advantages ${values.map(signed).join(" ")}`];
    },
  },
  silent: {
    sliders: [["p", "success rate p", 0, 1, 0.01], ["members", "members G", 2, 32, 1]],
    draw({ p, members }) {
      const a = area(0, 1, 0, 1, "share of silent groups against the success rate");
      a.svg.append(...a.frame("success rate p", "share of groups that teach nothing"),
        a.path(range(0, 1).map((x) => [x, F.silent(x, members)]), "line"),
        make("circle", { class: "dot", cx: a.sx(p), cy: a.sy(F.silent(p, members)), r: 7 }));
      return [a.svg, `${(100 * F.silent(p, members)).toFixed(1)} % of the groups are silent`];
    },
  },
  tokens: {
    sliders: [["width", "screenshot width, px", 96, 1920, 32], ["turns", "turns", 1, 48, 1]],
    draw({ width, turns, bytes }) {
      const of = (w) => F.imageTokens(w, (w * 3) / 4) * turns;
      const a = area(96, 1920, 0, of(1920), "image tokens of an episode against the width");
      a.svg.append(...a.frame("width, px; the height is 3/4 of it", "image tokens of an episode"),
        a.path(range(96, 1920).map((w) => [w, of(w)]), "line"),
        make("circle", { class: "dot", cx: a.sx(width), cy: a.sy(of(width)), r: 7 }));
      const gib = (of(width) * bytes) / 2 ** 30;
      return [a.svg, `${of(width)} image tokens, ${gib.toFixed(gib < 1 ? 3 : 1)} GiB of KV cache`];
    },
  },
  aim: {
    sliders: [["x", "x", 0, 95, 1], ["y", "y", 0, 95, 1]],
    draw({ x, y, box }, set) {
      const svg = make("svg", { viewBox: "0 0 96 96", class: "screen", role: "img", "aria-label": "a screen with a button; drag the click" });
      for (let i = 0; i < 96; i += 4) for (let j = 0; j < 96; j += 4) {
        svg.append(make("rect", { class: "heat", x: i, y: j, width: 4, height: 4, opacity: F.reward(i + 2, j + 2, box, 96) }));
      }
      const [left, top, right, bottom] = box;
      svg.append(make("rect", { class: "button", x: left, y: top, width: right - left, height: bottom - top }),
        make("path", { class: "cross", d: `M${x - 4} ${y}H${x + 4}M${x} ${y - 4}V${y + 4}` }));
      drag({ svg, back: (e) => { const b = svg.getBoundingClientRect();
        return [(96 * (e.clientX - b.left)) / b.width, (96 * (e.clientY - b.top)) / b.height]; } },
        ([u, v]) => set({ x: Math.floor(u), y: Math.floor(v) }));
      return [svg, `click (${x}, ${y}): reward ${two(F.reward(x, y, box, 96))}`];
    },
  },
  kl: {
    sliders: [["weight", "KL weight β", 0.05, 3, 0.01], ["reference", "reference p", 0.02, 0.98, 0.01]],
    draw({ weight, reference }) {
      const a = area(0.05, 3, 0, 1, "where the policy settles, against the KL weight");
      const q = F.drifted(reference, weight);
      a.svg.append(...a.frame("KL weight β", "probability of the paid answer"),
        a.path([[0.05, reference], [3, reference]], "free"),
        a.path(range(0.05, 3).map((b) => [b, F.drifted(reference, b)]), "line"),
        make("circle", { class: "dot", cx: a.sx(weight), cy: a.sy(q), r: 7 }));
      return [a.svg, `settles at ${two(q)}, ${two(F.kl(q, reference))} nats from the reference`];
    },
  },
};

// The pointer on a drawing: told where it is, in the drawing's own units, from down to up.
function drag(a, tell) {
  a.svg.classList.add("grab");
  a.svg.tell = (event) => tell(a.back(event));
  a.svg.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    a.svg.dispatchEvent(new CustomEvent("grab"));
    a.svg.tell(event);
  });
}

function render({ model, el }) {
  const kind = kinds[model.get("kind")];
  let values = { ...model.get("values") }, held = false;
  el.classList.add("cua-knob");
  const stage = make("div", { class: "stage" }), said = make("output", { class: "said", "aria-live": "polite" });
  const controls = make("div", { class: "controls" }), inputs = {};
  const set = (change) => { values = { ...values, ...clamp(change) }; update(); };
  const clamp = (change) => Object.fromEntries(Object.entries(change).map(([name, value]) => {
    const slider = kind.sliders.find(([key]) => key === name);
    return [name, slider ? Math.min(slider[3], Math.max(slider[2], value)) : value];
  }));
  for (const [name, label, least, most, step] of kind.sliders) {
    const row = make("label", {}, label), shown = make("output");
    const input = make("input", { type: "range", min: least, max: most, step, "aria-label": label, "data-lm-suppress-shortcuts": "true" });
    input.addEventListener("input", () => set({ [name]: Number(input.value) }));
    row.append(input, shown);
    controls.append(row);
    inputs[name] = [input, shown];
  }
  function update() {
    const [svg, sentence] = kind.draw(values, set);
    svg.addEventListener("grab", () => { held = true; });
    stage.replaceChildren(svg);
    said.textContent = sentence;
    for (const [name, [input, shown]] of Object.entries(inputs)) {
      input.value = values[name];
      shown.textContent = Math.round(100 * values[name]) / 100;
    }
  }
  const move = (event) => { if (held) stage.firstChild.tell?.(event); };
  const drop = () => { held = false; };
  window.addEventListener("pointermove", move);
  window.addEventListener("pointerup", drop);
  el.replaceChildren(stage, controls, said);
  update();
  return () => { window.removeEventListener("pointermove", move); window.removeEventListener("pointerup", drop); };
}
// On a page of its own: the data block says what to show.
export function boot() {
  for (const el of document.querySelectorAll("[data-widget]")) {
    const data = JSON.parse(document.getElementById(el.dataset.widget).textContent);
    render({ model: { get: (name) => data[name] }, el });
  }
}
export default { render };
