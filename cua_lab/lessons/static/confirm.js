// Asks a person about one action at a time. Keys, while the box has the focus: a approve, l approve
// all alike, r or Escape reject, e edit. JupyterLab steals keys from widgets, so each focusable
// element carries data-lm-suppress-shortcuts. Nothing of a policy is ever written as markup.

const make = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  if (["BUTTON", "TEXTAREA"].includes(tag.toUpperCase()) || props.tabIndex >= 0)
    node.dataset.lmSuppressShortcuts = "true";
  return node;
};

const SVG = "http://www.w3.org/2000/svg";
const draw = (tag, attributes) => {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};

function render({ model, el }) {
  const root = make("div", { className: "cua-confirm", tabIndex: 0 });
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "the gate");
  const picture = make("img", { className: "cf-screen", draggable: false });
  const marks = draw("svg", { class: "cf-marks", viewBox: "0 0 1 1", preserveAspectRatio: "none" });
  const stage = make("div", { className: "cf-stage" }, picture, marks);
  const head = make("div", { className: "cf-head" });
  head.setAttribute("role", "status");
  const call = make("code", { className: "cf-call" });
  const reason = make("div", { className: "cf-reason" });
  const thought = make("div", { className: "cf-thought" });
  const left = make("div", { className: "cf-left" });
  const editor = make("textarea", { className: "cf-editor", rows: 3, hidden: true, spellcheck: false });
  editor.setAttribute("aria-label", "the call to run instead, JSON");

  let timer = 0;
  const answer = (verdict, more = {}) => {
    const question = model.get("question");
    if (question.number) model.send({ number: question.number, verdict, ...more });
  };
  const edit = () => {
    if (editor.hidden) {
      editor.hidden = false;
      editor.focus();
    } else {
      answer("edit", { call: editor.value });
    }
  };
  const button = (text, key, act) => {
    const node = make("button", { type: "button", textContent: `${text} (${key})`, onclick: act });
    node.dataset.key = key;
    return node;
  };
  const buttons = make("div", { className: "cf-buttons" },
    button("approve", "a", () => answer("approve")),
    button("reject", "r", () => answer("reject")),
    button("edit", "e", edit),
    button("approve all alike in this episode", "l", () => answer("approve_alike")));
  root.addEventListener("keydown", (event) => {
    if (event.target === editor && event.key !== "Escape") return;
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    const key = event.key === "Escape" ? "r" : event.key.toLowerCase();
    const found = [...buttons.children].find((one) => one.dataset.key === key);
    if (!found || !model.get("question").number) return;
    event.preventDefault();
    event.stopPropagation();
    found.click();
  });

  const log = make("ol", { className: "cf-log" });
  const ask = make("div", { className: "cf-ask" }, stage,
    make("div", { className: "cf-words" }, call, reason, thought, left, editor, buttons));
  const arrow = ([from, to], asked) => {
    const line = { x1: from[0], y1: from[1], x2: to[0], y2: to[1], class: "cf-line" };
    return asked.length > 1 ? [draw("line", { ...line, class: "cf-halo" }), draw("line", line)] : [];
  };
  const show = () => {
    const question = model.get("question");
    const asked = Boolean(question.number);
    ask.hidden = !asked;
    clearInterval(timer);
    head.textContent = asked
      ? `Episode ${question.episode} asks${question.asked > 1 ? ", anew: the screen has changed" : ""}`
      : "Nothing is asked.";
    if (!asked) return;
    picture.src = question.screenshot;
    picture.alt = `the screen; the action is ${question.words}`;
    call.textContent = question.words;
    reason.textContent = question.reason;
    root.dataset.risk = question.risk;
    thought.textContent = question.thought ? `It said: ${question.thought}` : "";
    editor.value = question.call;
    editor.hidden = true;
    const points = question.at;
    marks.replaceChildren(
      ...(points.length > 1 ? arrow(points, points) : []),
      ...points.flatMap(([cx, cy]) => [
        draw("ellipse", { cx, cy, rx: 0.03, ry: 0.03, class: "cf-halo" }),
        draw("ellipse", { cx, cy, rx: 0.03, ry: 0.03, class: "cf-line" }),
      ]));
    const end = performance.now() + question.limit_s * 1000;
    const tick = () => {
      const rest = Math.max(0, Math.ceil((end - performance.now()) / 1000));
      left.textContent = rest ? `No answer in ${rest} s is a no.` : "The time is over: no.";
    };
    tick();
    timer = setInterval(tick, 500);
    root.focus({ preventScroll: true });
  };
  const told = () => log.replaceChildren(...model.get("log").map((text) => make("li", { textContent: text })));
  model.on("change:question", show);
  model.on("change:log", told);
  root.append(head, ask, log);
  el.append(root);
  show();
  told();
  return () => clearInterval(timer);
}

export default { render };
