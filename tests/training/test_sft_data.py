"""Rows and conversations as examples: the right tokens carry loss, in the policy's space."""

import json
from pathlib import Path

import numpy as np
import pytest

from cua_lab.dataset.conversations import to_article, to_tool_calls
from cua_lab.dataset.grounding import GroundingSample, read_samples
from cua_lab.errors import LabError
from cua_lab.recipes.sft_recipe import DataSettings
from cua_lab.training.sft_data import SftDataset, batches, read_training_rows
from tests.support_calls import call_text
from tests.support_sft import NO_TOOLS, draw, trainer


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return draw(tmp_path_factory.mktemp("drawn"))


@pytest.fixture(scope="module")
def data(file: Path) -> SftDataset:
    return trainer(file)[0]._data


def variant(file: Path, name: str, lines: list[dict]) -> Path:
    """Another file beside the same screenshots."""
    path = file.with_name(name)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_exactly_the_call_and_its_end_carry_loss(file: Path, data: SftDataset) -> None:
    """Without the end token answers never end (verl#3562, slime#514)."""
    samples = list(read_samples(file))
    for index in (0, 5):
        item = data.example(index)
        arguments = json.loads(
            data.reader.prompt_format.answer(samples[index], (96, 96))["tool_calls"][0]["function"][
                "arguments"
            ]
        )
        ids = np.asarray(item.example.ids)
        said = data.policy.tokenizer.decode(ids[item.loss_mask])
        assert said == call_text("computer", arguments) + "<|im_end|>"
        pads = int((ids == data.policy.image_token_id).sum())
        assert pads == int(item.example.grids.prod()) // data.policy.merge**2


def test_rows_and_conversations_in_either_shape_are_the_same_example(
    file: Path, data: SftDataset
) -> None:
    samples = list(read_samples(file))
    for name, shape in (("article.jsonl", to_article), ("calls.jsonl", to_tool_calls)):
        other = variant(file, name, [shape(sample) for sample in samples])
        again = trainer(other)[0]._data
        assert list(again.example(3).example.ids) == list(data.example(3).example.ids)


def test_a_chat_template_that_drops_calls_is_refused(file: Path, data: SftDataset) -> None:
    """Qwen2.5-VL's own: the loss would cover nothing but <|im_end|>, and look healthy."""
    fresh = trainer(file)[0]._data
    fresh._texts.clear()
    fresh.policy.tokenizer.chat_template = NO_TOOLS
    with pytest.raises(LabError, match=r"samples.jsonl line 1: .*knows no tools.*lab"):
        fresh.example(0)


def test_a_click_may_be_taught_at_the_middle_of_its_box(file: Path) -> None:
    sample = next(read_samples(file))
    reader = trainer(file, "data.point=box_centre")[0]._data.reader
    call = reader.conversation(0)[0][-1]["tool_calls"][0]["function"]["arguments"]
    x, y = reader.prompt_format.read(json.loads(call), (96, 96))
    x0, y0, x1, y1 = sample.box_unit
    assert (x, y) == pytest.approx(((x0 + x1) / 2, (y0 + y1) / 2), abs=1 / 96)


def several_steps(sample: GroundingSample) -> dict:
    one = to_tool_calls(sample, "0-1000")["messages"]
    tool = {"role": "tool", "tool_call_id": "call_0", "content": "Tool executed successfully"}
    after = {"role": "user", "content": [{"type": "image", "image": sample.screenshot}]}
    return {"messages": [*one, tool, after, one[1]]}


def test_several_steps_are_trained_on_as_they_are_written(file: Path) -> None:
    samples = list(read_samples(file))
    other = variant(file, "steps.jsonl", [several_steps(sample) for sample in samples])
    with pytest.raises(LabError, match=r"line 1: .*speaks 0-1000, but .* declared as None"):
        trainer(other)
    item = trainer(other, "data.space=0-1000")[0]._data.example(0)
    assert len(item.example.grids) == 2
    edges = np.flatnonzero(np.diff(item.loss_mask.astype(int)) == 1)
    assert len(edges) == 2


def test_mistakes_name_the_line(file: Path) -> None:
    row = next(read_samples(file)).to_row()
    for change, says in (
        ({"screenshot": "gone.png"}, "line 1: the screenshot .*gone.png cannot be read"),
        ({"action": "fly"}, "line 1: action is 'fly'"),
        ({"action": "key", "keys": ["enter"], "coordinates": None}, "would refuse this sample"),
    ):
        with pytest.raises(LabError, match=says):
            trainer(variant(file, "bad.jsonl", [row | change]))
    with pytest.raises(LabError, match=r"are more than data.max_tokens, 20"):
        trainer(file, "data.max_tokens=20")
    with pytest.raises(LabError, match="there is no file"):
        trainer(file.with_name("none.jsonl"))


def test_every_row_comes_once_an_epoch_and_never_in_the_same_order(data: SftDataset) -> None:
    rows = data.reader.rows
    drawn = list(batches(rows, DataSettings(), count=6, size=4, seed=0))
    flat = [index for batch in drawn for index in batch]
    assert sorted(flat[:12]) == sorted(flat[12:]) == list(range(12))
    assert flat[:12] != flat[12:]
    assert drawn == list(batches(rows, DataSettings(), count=6, size=4, seed=0))


def test_a_curriculum_begins_with_the_easy_rows(file: Path, data: SftDataset) -> None:
    samples = list(read_samples(file))
    hard = [
        s.to_row() | {"instruction": s.instruction + " " + "please " * 30, "steps": 6}
        for s in samples[6:]
    ]
    other = variant(file, "mixed.jsonl", [*(s.to_row() for s in samples[:6]), *hard])
    rows = read_training_rows(other, data.reader.prompt_format, space=None)
    settings = DataSettings(order="curriculum", medium_from=0.5, hard_from=0.5, review=0.0)
    drawn = list(batches(rows, settings, count=10, size=4, seed=0))
    assert {i for batch in drawn[:5] for i in batch} <= set(range(6))
    assert {i for batch in drawn[5:] for i in batch} <= set(range(6, 12))


SYSTEM = {"role": "system", "content": "Mine alone."}


def text_of(data: SftDataset, index: int = 0) -> str:
    return data.policy.tokenizer.decode(data.example(index).example.ids)


def user(*parts: str) -> dict:
    """A user message: names of files are images, all else is text."""
    content = [
        {"type": "image", "image": part}
        if part.endswith(".png")
        else {"type": "text", "text": part}
        for part in parts
    ]
    return {"role": "user", "content": content}


def test_two_images_and_two_texts_of_one_step_are_all_trained_on(file: Path) -> None:
    """ms-swift#6153, trl#3121: parts keyed by their type kept the last of each."""
    samples = list(read_samples(file))
    shots = [sample.screenshot for sample in samples[:2]]
    answer = to_tool_calls(samples[0], "0-1000")["messages"][-1]
    line = {"messages": [user("First:", shots[0], "Now:", shots[1], "Click."), answer]}
    data = trainer(variant(file, "two.jsonl", [line] * 8), "data.space=0-1000")[0]._data
    assert len(data.example(0).example.grids) == 2
    said = text_of(data)
    assert said.index("First:") < said.index("Now:") < said.index("Click.")


def test_a_rows_own_system_message_is_kept(file: Path) -> None:
    lines = []
    for sample in read_samples(file):
        line = to_tool_calls(sample)
        lines.append(line | {"messages": [SYSTEM, *line["messages"]]})
    data = trainer(variant(file, "system.jsonl", lines))[0]._data
    assert text_of(data).count("<|im_start|>system") == 1
    assert "Mine alone." in text_of(data)


def sharegpt(sample: GroundingSample, text: str, images: int = 1) -> dict:
    line = to_article(sample)
    said = {"role": "user", "content": text}
    names = [sample.screenshot] * images
    return line | {"messages": [said, line["messages"][-1]], "images": names}


def test_string_content_with_images_beside_it_is_the_same_example(
    file: Path, data: SftDataset
) -> None:
    """LLaMA-Factory#7592: `<image>` says where each image belongs."""
    samples = list(read_samples(file))
    for form in ("{}<image>", "{}\n<image>"):
        lines = [sharegpt(sample, form.format(sample.instruction)) for sample in samples]
        again = trainer(variant(file, "sharegpt.jsonl", lines))[0]._data
        assert list(again.example(3).example.ids) == list(data.example(3).example.ids)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"images": ["a.png", "b.png"]}, "2 images but 1 places"),
        ({"images": "a.png"}, "images is 'a.png'"),
        ({"messages": "no"}, "messages is str; expected a list"),
        ({"messages": [{"role": "user", "content": "Hi"}]}, "no assistant message"),
        ({"messages": [user("a.png") | {"content": 5}]}, "content is int"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "has the part"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "has the part"),
    ],
)
def test_a_conversation_that_cannot_be_read_is_one_error_with_a_hint_that_is_true(
    file: Path, line: dict, says: str
) -> None:
    """`data check` sorts samples, not conversations."""
    first = sharegpt(next(read_samples(file)), "Click.<image>")
    if "messages" in line:
        del first["images"]
    with pytest.raises(LabError, match=says) as caught:
        trainer(variant(file, "bad.jsonl", [first | line]))
    assert "line 1" in str(caught.value)
    assert "data check" not in str(caught.value)
