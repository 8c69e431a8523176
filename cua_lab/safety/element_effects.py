"""What pressing an element does: by its role, its name, its address and its form.

    Element ──activated──▶ Effects

Names are read by word lists, in English, French, German, Italian and Spanish. A list can miss a
button that hides what it does; it is one wall among several (hosts, forms, secrets), and a policy
file adds patterns of its own. Invariant: something that the desktop cannot look into is `unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import urlsplit

from cua_lab.desktop.screen_context import Element, Form, ScreenContext
from cua_lab.safety.effect_kinds import Effect

VERBS: dict[str, str] = {
    "delete": r"delet\w*|remov\w*|eras\w*|trash|discard|destroy|wipe|purge|bin|unlink|drop"
    r"|factory reset|empty (the )?(trash|bin|cart)|löschen|entfernen|supprimer|effacer"
    r"|eliminar|borrar|elimina|cancella",
    "pay": r"pay|payment|buy|purchas\w*|order|check ?out|transfer|donat\w*|subscrib\w*"
    r"|place (an? )?(bid|bet)|withdraw|deposit|rent now|book (now|flight|it)|top ?up|invest"
    r"|bezahlen|kaufen|bestellen|überweisen|payer|acheter|commander|pagar|comprar|paga|acquista",
    "send": r"send|reply|reply all|forward|post|publish|tweet|retweet|share|comment|submit (a )?"
    r"(comment|review|post)|broadcast|invite|merge|deploy|senden|abschicken|envoyer|publier"
    r"|enviar|publicar|invia|pubblica",
    "install": r"install\w*|run|execute|update now|upgrade( now)?|add (to|extension)( \w+)?|enable"
    r" macros|enable content|keep anyway|installieren|ausführen|installer|instalar|installa",
    "grant": r"allow\w*|grant|authori[sz]e\w*|permit|trust|always open|i agree|accept( all)?|agree"
    r"|approve|give access|erlauben|zulassen|autoriser|permitir|autorizza|consenti",
    "download": r"download\w*|save (as|file)|export|herunterladen|télécharger|descargar|scarica",
    "account": r"(sign|log) ?(in|on|up|out|off)|log ?in|log ?out|register|create account|change"
    r" (password|e-?mail)|reset password|deactivate|close account|verify|anmelden|abmelden"
    r"|connexion|iniciar sesión|accedi",
    "upload": r"upload|attach( (a )?file)?|choose files?|hochladen|téléverser|subir",
    "close_window": r"close (the )?(window|tab)",
    "quit": r"quit|exit|shut ?down|power off|restart|reboot|beenden|quitter|salir|esci",
}
"""What the names of buttons promise; whole words, any case."""
_ANYWHERE = {kind: re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.I) for kind, words in VERBS.items()}
_LEADING = {kind: re.compile(rf"\W*(?:{words})(?!\w)", re.I) for kind, words in VERBS.items()}
PRESSED = frozenset(
    {"button", "link", "menuitem", "tab", "menuitemradio", "menuitemcheckbox", "clickable", "text"}
)
"""Roles whose names say what they do; the name of a checkbox is what it is about. `clickable` has a
pointer over it or a handler in its markup; `text` is short, and a script may listen to it."""
TYPED_INTO = frozenset({"textbox", "searchbox", "combobox", "spinbutton", "address bar"})
NAME_CHARS = 200
"""Longer names are cut, so that each pattern takes a bounded time."""


def host_of(url: str) -> str:
    """The host of an address in lower case without a dot at its end, "" where it has none."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:  # a broken IPv6 address
        return ""


def activated(element: Element | None, context: ScreenContext) -> Iterator[Effect]:
    """A click on an element, or Enter or Space while it has the focus."""
    where = f" on {host_of(context.url)}" if host_of(context.url) else ""
    if element is None:
        yield Effect("click", f"a place{where} where nothing reacts")
        return
    words = f"{element.words}{where}"
    if element.role == "unseen":
        yield Effect("unknown", f"{words}: nobody can see what is inside of it")
        return
    if element.kind == "file":
        yield Effect("upload", words)
    if element.href:
        yield from followed(element, context, words)
    if element.kind in ("submit", "image") and element.form is not None:
        yield from sent(element.form, context, words)
    named = [Effect(kind, words) for kind in verbs(element.name)] if element.role in PRESSED else []
    yield from named or [Effect("click", words)]


@lru_cache(maxsize=512)
def verbs(name: str) -> tuple[str, ...]:
    """The kinds that a button's name promises; its first word decides where it says one."""
    name = name[:NAME_CHARS]
    first = [kind for kind, words in _LEADING.items() if words.match(name)]
    return tuple(first or [kind for kind, words in _ANYWHERE.items() if words.search(name)])


def followed(element: Element, context: ScreenContext, words: str) -> Iterator[Effect]:
    """The address of a link is opened."""
    scheme = urlsplit(element.href).scheme if "://" in element.href else element.href.split(":")[0]
    if element.download:
        yield Effect("download", words, element.href)
    if scheme == "javascript":
        return  # a button in a link's clothes: its name is all there is
    if scheme not in ("http", "https"):
        yield Effect("unknown", f"{words} opens {scheme}: and not a page", element.href)
    elif host_of(element.href) == host_of(context.url):
        yield Effect("follow_link", words, element.href)
    else:
        yield Effect("open_site", f"{words} leads to {host_of(element.href)}", element.href)


def sent(form: Form, context: ScreenContext, words: str) -> Iterator[Effect]:
    """A form is sent; what its button is called counts too, since Enter presses it."""
    away = form.action and host_of(form.action) != host_of(context.url)
    if away:
        yield Effect("open_site", f"{words} sends a form to {host_of(form.action)}", form.action)
    plain = not away and not form.secret and form.method == "get"
    yield Effect("query" if plain else "submit_form", f"{words} sends its form", form.action)
    yield from (Effect(kind, f'{words} presses "{form.button}"') for kind in verbs(form.button))
