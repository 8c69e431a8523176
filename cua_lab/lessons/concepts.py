"""One picture for each idea that is a path: who hands what to whom.

Invariant: every box names a part that exists; the words are those of the lesson that shows it.
"""

from __future__ import annotations

from cua_lab.lessons.chain import Box, chain
from cua_lab.viz.picture import Picture


def id_path() -> Picture:
    """Lesson 02: where messages become ids, where ids become a message, and who keeps them."""
    return chain(
        [
            Box("agent", "talks in messages"),
            Box("shim", "keeps ids, logprobs", marked=True),
            Box("server", "template, tokenizer"),
            Box("model", "talks in ids"),
        ],
        there=["messages,\ntools", "the same,\nand: return ids", "prompt ids"],
        back=["message\n(a reading)", "message,\nids, logprobs", "sampled ids"],
        alt="The path of one answer. The agent sends messages to the shim, which adds a request for"
        " ids and sends them to the server; the server renders prompt ids for the model. Sampled"
        " ids come back; the server parses them into a message and sends both; the shim keeps the"
        " ids and log-probabilities, and the agent gets the message.",
    )


def tool_stages() -> Picture:
    """Lesson 03: what happens to a call before the policy sees a screenshot again."""
    return chain(
        [
            Box("check", "the whole call, or\nnothing is sent"),
            Box("convert", "view to desktop,\nnames to keysyms"),
            Box("send", "keys and pointer,\nRFB"),
            Box("settle", "until the screen\nis quiet", marked=True),
            Box("look", "screenshot,\nscaled to the view"),
        ],
        there=["a valid\ncall", "events", "reactions", "frame"],
        alt="The five stages of the computer tool, left to right: check the whole call, convert"
        " coordinates and key names, send keys and pointer events over RFB, settle until the"
        " screen is quiet, look: a screenshot scaled to what the policy sees.",
    )


def browser_parts() -> Picture:
    """Lesson 08: the processes of one real desktop, and what each is spoken to with."""
    return chain(
        [
            Box("tool", "the policy's hand"),
            Box("Xvnc", "X server and VNC"),
            Box("Chromium", "kiosk mode"),
            Box("page", "MiniWoB++, or yours", marked=True),
            Box("grader", "and the expert"),
        ],
        there=["keys, clicks\n(RFB)", "X events", "DOM events", "reward, state\n(DevTools)"],
        back=["pixels\n(RFB)", "pixels (X)", "paint", ""],
        alt="One real desktop. The computer tool sends keys and clicks over RFB to Xvnc, an X"
        " server without a monitor, and gets pixels back; Chromium in kiosk mode draws on it and"
        " shows the page; the grader and the expert read the page over the DevTools protocol, not"
        " the screen. A pool holds eight of these, lends one to each episode and resets it in"
        " between.",
    )


def grpo_loop() -> Picture:
    """Lesson 06: one step of the loop."""
    return chain(
        [
            Box("start states", "G of them"),
            Box("play", "M episodes each"),
            Box("grade", "from the app's state"),
            Box("compare", "within a group", marked=True),
            Box("update", "clipped loss, AdamW"),
        ],
        there=["G tasks", "G x M\nepisodes", "rewards\n(G, M)", "advantages\n(G, M)"],
        alt="One step of GRPO, left to right: G start states, M episodes played from each, each"
        " graded from the state of the app, rewards compared within their group of M to give"
        " advantages, and one update of the weights with the clipped loss. The next step plays with"
        " the new weights.",
    )
