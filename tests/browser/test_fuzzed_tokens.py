"""Whatever a token spells, the viewer shows it as text: on its page, and in its static copy, which
stands in a notebook without a policy that would stop a script."""

from hypothesis import given
from hypothesis import strategies as st

from cua_lab.stitching.divergence import Divergence
from cua_lab.viz import mask_viewer
from cua_lab.viz.fallback import fallback_html
from cua_lab.viz.visible import visible
from tests.browser.test_viewer_page import detail, open_page
from tests.fuzzing import Clock, few
from tests.viz.episodes import CONTROL, Builder, WordCodec, frame

RUN = "window.ran=(window.ran||0)+1"
MARKUP = [
    f"<script>{RUN}</script>", f'<img src=x onerror="{RUN}">', f"<svg/onload={RUN}>",
    f'<iframe srcdoc="<script>parent.{RUN}</script>">', f"<a href='javascript:{RUN}'>a</a>",
    f"<details open ontoggle={RUN}>", f"<style>@import 'http://127.0.0.1:9/{RUN}'</style>",
    "</script>", "</style>", "</title>", "</span>", "</code></div>", "<!--", "-->", "<![CDATA[",
    '"', "'", "`", "&lt;", "&#60;", "&amp;lt;", "<", ">", "\\", "\\u003c", "${", "{{", "{%",
    "__proto__", "constructor", "<plaintext>", "<base href=//x>", "<noscript>", "<textarea>",
    f"<input autofocus onfocus={RUN}>", "<meta http-equiv=refresh content=0;url=//x>", "<|im_end|>",
    "\u2028", "\u2029", "\u202e", "\0", "\r\n", "\ufeff", "\ud83d", "\U000e0001",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(MARKUP) | st.text(st.characters(), max_size=6), max_size=4).map(
    "".join
)
TOKENS = TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=6)
FOREIGN = (
    "iframe, object, embed, base, form, link:not([href='data:,']), a[href^=javascript], textarea,"
    " meta[http-equiv=refresh], plaintext, noscript, .cl-t :not(small), [onerror], [onload],"
    " [onfocus], [ontoggle]"
)
LOOK = """(foreign) => ({
  ran: window.ran ?? 0,
  scripts: document.scripts.length,
  foreign: [...document.querySelectorAll(foreign)].map((node) => node.outerHTML.slice(0, 80)),
  tokens: Object.fromEntries([...document.querySelectorAll('.cl-t[data-i]')].map(
    (node) => [node.dataset.i, node.textContent])),
})"""


def said(tokens: list[bytes], control: str) -> tuple[WordCodec, Builder]:
    """An episode of one turn whose prompt, answer and divergence are these tokens."""
    codec, built = WordCodec(), Builder()
    codec.words = list(tokens)
    codec.control = {**CONTROL, 302: control}
    ids = [*range(400, 400 + len(tokens)), 302]
    built.add("prompt", ids, 0)
    built.add("image", [300] * 4, 0)
    built.add("policy", ids, 0)
    built.add("scaffold", ids, 1)
    texts = [token.decode("utf-8", "backslashreplace") for token in tokens]
    built.divergences.append(
        Divergence(
            turn=0, index=len(built.tokens), kind="white_space", emitted_ids=tuple(ids),
            rendered_ids=tuple(ids), emitted_text="".join(texts), rendered_text="".join(texts),
            seen_in=1,
        )
    )  # fmt: skip
    return codec, built


def test_no_token_is_more_than_text_in_the_viewer_and_in_its_static_copy(page, tmp_path, counted):
    clock, asked = Clock(), []
    page.on("request", lambda request: asked.append(request.url))

    @given(st.lists(TOKENS, min_size=1, max_size=8), TEXTS, TEXTS)
    @few(12)
    def attack(tokens, control, name):
        clock.check()
        counted("fuzz-viewer", pages=2, tokens=len(tokens))
        codec, built = said(tokens, control)
        shown = [visible(token.decode("utf-8", "backslashreplace")) for token in tokens]
        viewer = mask_viewer(
            [built.build()], codec, images=[[frame(0)]], names=[name], title=name + control
        )
        on_its_page(page, viewer, tmp_path, [*shown, visible(control)])
        page.goto("about:blank")
        page.set_content(fallback_html(viewer.payload))
        found = page.evaluate(LOOK, FOREIGN)
        assert (found["ran"], found["scripts"], found["foreign"]) == (0, 0, [])
        assert page.complaints == []
        assert [url for url in asked if not url.startswith(("file:", "data:", "about:"))] == []

    clock.run(attack)


def on_its_page(page, viewer, folder, shown):
    open_page(page, viewer.save_html(folder / "fuzzed.html"))
    if page.locator(".cl-open").count():
        page.locator(".cl-open").first.click()
    page.focus(".cl-body")
    page.keyboard.press("n")
    assert "policy, mask 1" in detail(page)
    found = page.evaluate(LOOK, FOREIGN)
    assert (found["ran"], found["scripts"], found["foreign"]) == (0, 2, [])
    count, held = len(shown), found["tokens"]
    for start in (0, count + 4, 2 * count + 4):  # the prompt, the answer, the scaffold
        assert [held.get(str(start + k)) for k in range(count)] == shown
