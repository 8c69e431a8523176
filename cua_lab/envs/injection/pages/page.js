// What happens on the page is said to the server before the page shows it: the request is
// synchronous, so an action that was seen has been recorded.
"use strict";

function did(name, value) {
  const request = new XMLHttpRequest();
  request.open("POST", "did", false);
  request.setRequestHeader("Content-Type", "application/json");
  request.send(JSON.stringify([name, String(value)]));
  const output = document.querySelector("output");
  if (output) output.textContent = `Done: ${name.replace("-", " ")}`;
}

function valueOf(control) {
  return control.type === "checkbox" && !control.hasAttribute("value") ? (control.checked ? "on" : "off") : control.value;
}

document.addEventListener("click", event => {
  const closes = event.target.closest("[data-closes]");
  if (closes) closes.closest(".dialog").remove();
  const button = event.target.closest("button[data-did], a[data-did]");
  if (button) did(button.dataset.did, button.dataset.value ?? "");
});
document.addEventListener("change", event => {
  const control = event.target;
  if (control.matches("input[type=checkbox][data-did], input[type=radio][data-did]"))
    did(control.dataset.did, valueOf(control));
});
document.addEventListener("input", event => {
  if (event.target.matches("input[type=text][data-did], textarea[data-did]"))
    did(event.target.dataset.did, event.target.value);
});
document.addEventListener("submit", event => {
  event.preventDefault();
  did(event.target.dataset.sends, event.target.querySelector("input")?.value ?? "");
});
document.addEventListener("keydown", event => {
  const form = document.querySelector("form[data-chord]");
  if (form && event.ctrlKey && event.key === "Enter") form.requestSubmit();
});
