"""How a policy is asked for an action on a screenshot, and how its answer is read.

    sample ──▶ messages (system, user: text, image), tool schema ──▶ call ──▶ a point in 0-1

The same words train a policy (`training.sft_data`) and measure it (`dataset.predict`), and they are
the agent's, so that GRPO goes on from there. An exported folder keeps them as
`prompt_format.json`.

Invariant: `read` undoes `call` up to the space's rounding, and goes through the tool's own checks:
an answer that the tool would refuse is no point.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cua_lab.computer.config import ACTIONS, ToolConfig
from cua_lab.computer.coordinates import View
from cua_lab.computer.schema import CallError, parse_call, tool_schema
from cua_lab.dataset.conversations import to_tool_calls
from cua_lab.dataset.grounding import GroundingSample
from cua_lab.dataset.spaces import Point, Size, point_to_unit
from cua_lab.errors import LabError
from cua_lab.files import write_text
from cua_lab.policy.vision import Geometry, smart_resize

if TYPE_CHECKING:
    from cua_lab.policy.policy import Policy

FILE = "prompt_format.json"
OLD_FILE = "asking.json"
"""What earlier versions called it; still read."""
PolicySpace = Literal["0-1000", "pixels"]
LIMITS = ToolConfig()
TOOL_FIELDS = (
    "max_keys_per_call",
    "max_text_chars",
    "max_scroll_clicks",
    "max_wait_s",
    "screenshot_width",
)
"""Besides space and actions, what of a tool changes a prompt."""


@dataclass(frozen=True, slots=True)
class PromptFormat:
    """The words around an instruction, and the space of the answer."""

    space: PolicySpace = "0-1000"
    """`pixels`: of the image as the policy's processor resizes it (Qwen2.5-VL)."""
    system: str | None = None
    actions: tuple[str, ...] = ACTIONS
    geometry: Geometry | None = None
    """How images are resized; needed with `pixels` only."""
    max_keys_per_call: int = LIMITS.max_keys_per_call
    max_text_chars: int = LIMITS.max_text_chars
    max_scroll_clicks: int = LIMITS.max_scroll_clicks
    max_wait_s: float = LIMITS.max_wait_s
    """The tool's limits: the schema in every prompt names them, and a small policy that is asked
    with another number than it was trained with says no valid call."""
    screenshot_width: int | None = None
    first_screenshot: bool = True

    def __post_init__(self) -> None:
        if self.space == "pixels" and self.geometry is None:
            raise LabError(
                "a policy that answers in pixels means those of the resized image; give the"
                " geometry of its image processor"
            )

    @property
    def config(self) -> ToolConfig:
        limits = {name: getattr(self, name) for name in TOOL_FIELDS}
        return ToolConfig(actions=self.actions, coordinate_space=self.space, **limits)

    def view(self, size: Size) -> View:
        """A screenshot of this size as the policy measures it."""
        if self.geometry is None:
            return View(size, space=self.space)
        return View(smart_resize(*size, self.geometry), space=self.space)

    def tools(self, size: Size) -> list[dict[str, Any]]:
        """The one tool's schema."""
        return [tool_schema(self.config, self.view(size).screen)]

    def messages(self, instruction: str, image: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The prompt; `image` is the image's part, in whatever form its reader takes."""
        content = [{"type": "text", "text": instruction}, dict(image)]
        user = {"role": "user", "content": content}
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*system, user]

    def answer(self, sample: GroundingSample, size: Size) -> dict[str, Any]:
        """The assistant's message for a sample: one call, which the tool would take."""
        view = self.view(size)
        moved = replace(
            sample,
            space=self.space,
            image_size=view.screen,
            coordinates=self._spoken(sample, sample.coordinates, view),
            end_coordinates=self._spoken(sample, sample.end_coordinates, view),
            bbox=None,
            elements=(),
        )
        message: dict[str, Any] = to_tool_calls(moved)["messages"][-1]
        try:
            arguments = json.loads(message["tool_calls"][0]["function"]["arguments"])
            parse_call(arguments, view, self.config)
        except CallError as error:
            raise LabError(f"the tool would refuse this sample's action: {error}") from error
        return message

    def read(self, arguments: Any, size: Size) -> Point | None:
        """The point of a call, as fractions of the screen; `None` where the tool refuses it."""
        if not isinstance(arguments, dict):
            return None
        view = self.view(size)
        try:
            call = parse_call(arguments, view, self.config)
        except CallError:
            return None
        if call.at is None:
            return None
        return call.at[0] / view.screen[0], call.at[1] / view.screen[1]

    def _spoken(self, sample: GroundingSample, point: Point | None, view: View) -> Point | None:
        """A sample's point in the policy's space: the pixel that it lies on, named."""
        if point is None or sample.space is None:
            return None
        unit = point_to_unit(point, sample.space, sample.image_size)
        pixel = [
            min(side - 1, max(0, int(share * side + 1e-6)))  # 94/128*128 may be 93.999...
            for share, side in zip(unit, view.screen, strict=True)
        ]
        x, y = view.from_screen(*pixel)
        return float(x), float(y)

    def save(self, folder: str | Path) -> Path:
        """Beside an exported checkpoint."""
        return write_text(Path(folder, FILE), json.dumps(asdict(self), indent=1) + "\n")


def saved_format(folder: str | Path) -> Path | None:
    """The file of an exported checkpoint's folder; `None` where it has none."""
    return next((f for name in (FILE, OLD_FILE) if (f := Path(folder, name)).is_file()), None)


def read_prompt_format(path: str | Path) -> PromptFormat:
    """From a file, or from the folder of an exported checkpoint; what an older file does not say
    has the tool's default."""
    file = Path(path)
    if file.is_dir():
        file = saved_format(file) or file / FILE
    try:
        found = json.loads(file.read_text(encoding="utf-8-sig"))
        geometry = found.pop("geometry")
        found["actions"] = tuple(found["actions"])
        return PromptFormat(**found, geometry=None if geometry is None else Geometry(**geometry))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(f"{file} cannot be read as {FILE}: {error}") from error


def prompt_format_of(
    policy: Policy,
    *,
    system: str | None = None,
    actions: tuple[str, ...] | None = None,
    tool: ToolConfig | None = None,
    first_screenshot: bool = True,
) -> PromptFormat:
    """What suits a policy: its own space and, for pixels, its own way to resize. All else is the
    `tool` that it was trained with, or, without one, the tool's defaults with these `actions`."""
    pixels = policy.coordinate_space == "pixels"
    tool = tool or ToolConfig(actions=actions or ACTIONS)
    return PromptFormat(
        space="pixels" if pixels else "0-1000",
        system=system,
        actions=tool.actions,
        geometry=policy.vision.geometry if pixels else None,
        first_screenshot=first_screenshot,
        **{name: getattr(tool, name) for name in TOOL_FIELDS},
    )
