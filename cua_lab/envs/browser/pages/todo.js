// A to-do list. State: the items. `lab.start` begins an episode, `lab.state` is what the grader
// reads.
"use strict";

let items = [];
const field = document.getElementById("field");
const list = document.getElementById("items");

function button(kind, label, name, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = kind;
  made.textContent = label;
  made.setAttribute("aria-label", name);
  made.addEventListener("click", act);
  return made;
}

function draw() {
  list.replaceChildren(...items.map((item, i) => {
    const row = document.createElement("li"), text = document.createElement("span");
    row.classList.toggle("done", item.done);
    text.className = "text";
    text.textContent = item.text;
    row.append(
      button("check", item.done ? "✓" : "", `check ${item.text}`, () => {
        item.done = !item.done;
        draw();
      }),
      text,
      button("delete", "✕", `delete ${item.text}`, () => {
        items.splice(i, 1);
        draw();
      }),
    );
    return row;
  }));
}

document.querySelector("form").addEventListener("submit", event => {
  event.preventDefault();
  const text = field.value.trim();
  if (text) {
    items.push({ text, done: false });
    field.value = "";
    draw();
    list.lastElementChild.scrollIntoView();
  }
  field.focus();
});

function fit() { // Chromium lays out at least 500 px wide, whatever the screen shows of it
  const root = document.documentElement.style;
  root.setProperty("--w", `${screen.width}px`);
  root.setProperty("--h", `${screen.height}px`);
  root.setProperty("--u", `${Math.min(screen.width, screen.height) / 100}px`);
}

const lab = {
  start({ items: first }) {
    items = first.map(({ text, done }) => ({ text, done }));
    field.value = "";
    fit();
    draw();
    field.focus();
    return lab.state();
  },
  state() {
    return { app: "todo", items, text: field.value };
  },
};
