// What lies at two points of the screen and what has the focus: look([x, y] | null, [x, y] | null).
//
// Runs in a world of its own beside the page's scripts, which cannot reach it. What a page can do
// from its document alone, such as an <img name="elementFromPoint"> that hides the method of that
// name, is avoided by taking methods and getters from the prototypes.
globalThis.look = (() => {
  const getter = (prototype, name) => {
    const read = Object.getOwnPropertyDescriptor(prototype, name).get;
    return object => read.call(object);
  };
  const method = (prototype, name) => (object, ...more) => prototype[name].call(object, ...more);
  const fromPoint = {
    document: method(Document.prototype, "elementFromPoint"),
    shadow: method(ShadowRoot.prototype, "elementFromPoint"),
  };
  const active = {
    document: getter(Document.prototype, "activeElement"),
    shadow: getter(ShadowRoot.prototype, "activeElement"),
  };
  const typeOf = getter(Node.prototype, "nodeType");  // `instanceof` is false in a frame's own realm
  const kindOf = root => (typeOf(root) === Node.DOCUMENT_NODE ? "document" : "shadow");
  const attribute = method(Element.prototype, "getAttribute");
  const has = method(Element.prototype, "hasAttribute");
  const matches = method(Element.prototype, "matches");
  const all = method(Element.prototype, "querySelectorAll");
  const tagOf = element => getter(Element.prototype, "tagName")(element).toLowerCase();
  const textOf = getter(Node.prototype, "textContent");
  const parentOf = getter(Node.prototype, "parentNode");
  const rootOf = method(Node.prototype, "getRootNode");
  const shadowOf = getter(Element.prototype, "shadowRoot");
  const visible = element => {
    try {
      return getter(HTMLElement.prototype, "innerText")(element);
    } catch {
      return textOf(element);  // SVG
    }
  };
  const clean = text => (text || "").replace(/\s+/g, " ").trim().slice(0, 300);
  const FRAMES = ["iframe", "frame"];
  const OPAQUE = ["canvas", "embed", "object", "video", "audio", "fencedframe"];
  const REACTS = "a[href],area[href],button,input,select,textarea,summary,label,option,[role]," +
    "[onclick],[onmousedown],[onmouseup],[onpointerdown],[tabindex],[contenteditable]";
  const ROLES = {
    a: "link", area: "link", button: "button", select: "combobox", textarea: "textbox",
    option: "option", summary: "button", img: "img", label: "text",
  };
  const INPUTS = {
    checkbox: "checkbox", radio: "radio", range: "slider", number: "spinbutton",
    search: "searchbox", submit: "button", button: "button", reset: "button", image: "button",
    file: "button", color: "button",
  };
  const unseen = what => ({role: "unseen", name: what});

  const inFrame = frame => {
    try {
      const inner = getter(HTMLIFrameElement.prototype, "contentDocument")(frame);
      const loading = inner.URL === "about:blank" && (has(frame, "src") || has(frame, "srcdoc"));
      return loading ? null : inner;
    } catch {
      return null;  // another site's, or an old <frame>
    }
  };

  const closed = element =>  // a custom element may hide a whole page in a closed shadow
    tagOf(element).includes("-") && !shadowOf(element) ? unseen(`the element ${tagOf(element)}`) : null;

  const under = point => {
    if (!point) return null;
    let [x, y] = [point[0] / devicePixelRatio, point[1] / devicePixelRatio];
    let root = document, found = null;
    for (let depth = 0; depth < 32; depth++) {
      const element = fromPoint[kindOf(root)](root, x, y);
      if (!element && !found && root !== document) return unseen("a frame that shows nothing yet");
      if (!element || element === found) return found ? described(found) : null;
      found = element;
      const tag = tagOf(element);
      if (FRAMES.includes(tag)) {
        const inner = inFrame(element);
        if (!inner) return unseen("a frame of another site");
        const box = Element.prototype.getBoundingClientRect.call(element);
        const style = getComputedStyle(element);
        const side = name => parseFloat(style[`border${name}Width`]) + parseFloat(style[`padding${name}`]);
        [x, y, root, found] = [x - box.left - side("Left"), y - box.top - side("Top"), inner, null];
      } else if (shadowOf(element)) {
        root = shadowOf(element);
      } else {
        return described(element);
      }
    }
    return unseen("frames in frames");
  };

  const focus = () => {
    let root = document;
    for (let depth = 0; depth < 32; depth++) {
      const element = active[kindOf(root)](root);
      if (!element) return null;
      const tag = tagOf(element);
      if (FRAMES.includes(tag)) {
        root = inFrame(element);
        if (!root) return unseen("a frame of another site");
      } else if (shadowOf(element) && active.shadow(shadowOf(element))) {
        root = shadowOf(element);
      } else if (tag === "body" || tag === "html") {
        const writable = has(element, "contenteditable") || root.designMode === "on";
        return writable ? {role: "textbox", name: "the page", kind: "multiline"} : null;
      } else {
        return described(element);
      }
    }
    return unseen("frames in frames");
  };

  const described = target => {
    if (OPAQUE.includes(tagOf(target))) return unseen(`a ${tagOf(target)}`);
    let element = null, link = null;
    for (let at = target; at; at = parentOf(at) || at.host) {
      if (typeOf(at) !== Node.ELEMENT_NODE) continue;
      const hidden = closed(at);
      if (hidden) return hidden;
      if (!element && matches(at, REACTS)) element = at;
      if (!link && matches(at, "a[href],area[href]")) link = at;
    }
    if (element && tagOf(element) === "label") {
      element = getter(HTMLLabelElement.prototype, "control")(element) || element;
    }
    if (!element && !link) return plain(target);
    return reacting(element || link, link);
  };

  // Text that nothing in its markup makes react: a script may listen all the same.
  const plain = target => {
    const tag = tagOf(target);
    if (tag === "html" || tag === "body") return null;
    const name = clean([attribute(target, "alt"), attribute(target, "title"), visible(target)]
      .filter(Boolean).join(" / "));
    const pointer = getComputedStyle(target).cursor === "pointer";
    if (!pointer && name.length > 40) return null;
    return {role: pointer ? "clickable" : "text", name, kind: "", href: "", form: null};
  };

  const reacting = (element, link) => {
    const tag = tagOf(element);
    const type = tag === "input" || tag === "button"
      ? getter((tag === "input" ? HTMLInputElement : HTMLButtonElement).prototype, "type")(element)
      : "";
    return {
      role: roleOf(element, tag, type),
      name: nameOf(element, tag),
      kind: kindOfField(element, tag, type),
      href: link ? addressOf(link) : "",
      download: !!link && has(link, "download"),
      form: formOf(element, tag),
    };
  };

  const editable = element => {
    try {
      return getter(HTMLElement.prototype, "isContentEditable")(element);
    } catch {
      return false;
    }
  };

  const roleOf = (element, tag, type) => {
    if (tag === "input") return INPUTS[type] || "textbox";
    if (ROLES[tag]) return ROLES[tag];
    if (editable(element)) return "textbox";
    const said = (attribute(element, "role") || "").split(" ")[0].toLowerCase();
    return said && said !== "presentation" && said !== "none" ? said : "clickable";
  };

  // All that names it, not only what a screen reader says: the two may differ on purpose.
  const nameOf = (element, tag) => {
    const root = rootOf(element);
    const labels = (attribute(element, "aria-labelledby") || "").split(/\s+/).filter(Boolean)
      .map(id => root.getElementById && root.getElementById(id)).filter(Boolean).map(textOf);
    const own = "labels" in element ? [...(element.labels || [])].map(textOf) : [];
    const button = tag === "input" && ["submit", "button", "reset"].includes(element.type);
    const images = [...all(element, "img[alt],svg[aria-label]")]
      .map(image => attribute(image, "alt") || attribute(image, "aria-label"));
    const inside = tag === "select" || tag === "textarea" ? "" : visible(element);
    const parts = [
      ...labels, attribute(element, "aria-label"), ...own, button ? element.value : "", inside,
      ...images, attribute(element, "alt"), attribute(element, "placeholder"),
      attribute(element, "title"),
    ].map(clean).filter(Boolean);
    return clean([...new Set(parts)].join(" / "));
  };

  const kindOfField = (element, tag, type) => {
    const wanted = (attribute(element, "autocomplete") || "").toLowerCase().split(/\s+/);
    const token = wanted.find(word => /^cc-|password$|^one-time-code$/.test(word));
    if (token) return token;
    if (tag === "textarea" || (tag !== "input" && tag !== "button" && editable(element))) return "multiline";
    return type || tag;
  };

  const formOf = (element, tag) => {
    const native = {input: HTMLInputElement, button: HTMLButtonElement, select: HTMLSelectElement,
      textarea: HTMLTextAreaElement}[tag];
    const form = native ? getter(native.prototype, "form")(element) : null;
    if (!form) return null;
    const sends = has(element, "formaction") ? attribute(element, "formaction") : attribute(form, "action");
    const how = attribute(element, "formmethod") || attribute(form, "method") || "get";
    const button = all(form, "button:not([type=button]):not([type=reset]),input[type=submit],input[type=image]")[0];
    const secret = !!all(form, "input[type=password],[autocomplete*='cc-'],[autocomplete*='password']").length;
    return {
      action: sends ? new URL(sends, document.baseURI).href : location.href,
      method: how.toLowerCase(),
      button: button ? nameOf(button, tagOf(button)) : "",
      secret,
    };
  };

  const addressOf = link => {
    const href = link.href;
    return typeof href === "string" ? href : new URL(href.baseVal, document.baseURI).href;
  };

  return (at, to) => ({
    url: location.href,
    title: clean(getter(Document.prototype, "title")(document)),
    active: Document.prototype.hasFocus.call(document) &&
      getter(Document.prototype, "visibilityState")(document) === "visible",
    pointed: under(at),
    dropped: under(to),
    focused: focus(),
  });
})();
