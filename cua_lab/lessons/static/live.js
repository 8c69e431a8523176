// A live screen: every control builds the arguments of one `computer` call and sends it.
// JupyterLab steals keys from widgets, so each focusable element carries data-lm-suppress-shortcuts.

const make = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  if (["BUTTON", "INPUT", "SELECT"].includes(tag.toUpperCase()) || props.tabIndex >= 0)
    node.dataset.lmSuppressShortcuts = "true";
  return node;
};

function render({ model, el }) {
  const root = make("div", { className: "cua-live" });
  const [maxX, maxY] = model.get("limits");
  const whole = model.get("whole");
  const scale = Math.max(1, Math.round(340 / model.get("size")[0]));
  const actions = new Set(model.get("actions"));
  const send = (call) => model.send({ call });

  const picture = make("img", { className: "ll-screen", draggable: false });
  picture.style.width = `${model.get("size")[0] * scale}px`;
  const cross = make("div", { className: "ll-cross" });
  const light = make("div", { className: "ll-light" });
  const stage = make("div", { className: "ll-stage" }, picture, cross);

  const slider = (name, max) => {
    const input = make("input", { type: "range", min: 0, max, step: whole ? 1 : 0.001, value: max / 2 });
    const output = make("output", {}, input.value);
    input.setAttribute("aria-label", name);
    input.addEventListener("input", () => { output.value = input.value; aim(); });
    return { input, row: make("label", { className: "ll-row" }, make("b", {}, name), input, output),
             set: (v) => { input.value = v; output.value = input.value; } };
  };
  const x = slider("x", maxX), y = slider("y", maxY);
  const at = () => ({ x: Number(x.input.value), y: Number(y.input.value) });
  function aim() {
    const p = at();
    cross.style.left = `${(p.x / maxX) * 100}%`;
    cross.style.top = `${(p.y / maxY) * 100}%`;
  }

  stage.addEventListener("click", (event) => {
    if (!actions.has("click")) return;
    const box = picture.getBoundingClientRect();
    const value = (v, max) => { const raw = Math.min(1, Math.max(0, v)) * max; return whole ? Math.round(raw) : raw; };
    x.set(value((event.clientX - box.left) / box.width, maxX));
    y.set(value((event.clientY - box.top) / box.height, maxY));
    aim();
    send({ action: "click", ...at() });
  });

  const button = (label, build) => {
    const node = make("button", { type: "button" }, label);
    node.addEventListener("click", () => send(build()));
    return node;
  };
  const field = (value, label, build) => {
    const input = make("input", { type: "text", value, className: "ll-text" });
    input.setAttribute("aria-label", label);
    const go = () => send(build(input.value));
    input.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); go(); } });
    const node = make("button", { type: "button" }, label);
    node.addEventListener("click", go);
    return make("div", { className: "ll-row" }, input, node);
  };
  const controls = make("div", { className: "ll-controls" });
  const pointing = ["click", "double_click", "move"].filter((name) => actions.has(name));
  if (pointing.length) {
    const row = make("div", { className: "ll-row" });
    pointing.forEach((name) => row.append(button(name.replace("_", " "), () => ({ action: name, ...at() }))));
    controls.append(x.row, y.row, row);
  }
  if (actions.has("type")) controls.append(field("Buy tea", "type", (text) => ({ action: "type", text })));
  if (actions.has("press")) {
    const split = (text) => text.split(/\s+/).filter(Boolean);
    controls.append(field("left down", "press", (text) => ({ action: "press", keys: split(text) })));
    const row = make("div", { className: "ll-row" });
    [["←", "left"], ["↑", "up"], ["↓", "down"], ["→", "right"], ["tab", "tab"], ["enter", "enter"]].forEach(
      ([label, key]) => row.append(button(label, () => ({ action: "press", keys: [key] }))));
    controls.append(row);
  }
  if (actions.has("scroll"))
    controls.append(make("div", { className: "ll-row" },
      button("scroll up", () => ({ action: "scroll", ...at(), scroll_y: -1 })),
      button("scroll down", () => ({ action: "scroll", ...at(), scroll_y: 1 }))));

  const sent = make("code", { className: "ll-sent" });
  const said = make("div", { className: "ll-said" });
  said.setAttribute("role", "status");
  const state = make("div", { className: "ll-state" });
  controls.append(make("div", { className: "ll-out" }, sent, said, state));

  const show = () => {
    picture.src = model.get("frame");
    picture.alt = `the screen after ${model.get("sent")}`;
    sent.textContent = model.get("sent");
    said.textContent = model.get("said") || (model.get("error") ? "" : "a screenshot");
    root.classList.toggle("ll-error", model.get("error"));
    state.textContent = model.get("state");
    light.hidden = !model.get("following");
    light.textContent = `live · frame ${model.get("frames")}`;
  };
  for (const name of ["frame", "sent", "said", "error", "state", "following", "frames"]) model.on(`change:${name}`, show);
  root.append(make("div", {}, stage, light), controls);
  el.append(root);
  aim();
  show();
}

export default { render };
