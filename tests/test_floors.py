"""No room imports from a floor above its own, and no files import each other in a circle."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools.draw_floors import PICTURE, as_svg, as_text
from tools.floors import ROOT, faults, read_floors

FLOORS = [["roof"], ["hall", "den"], ["ground"]]


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A package of four rooms whose imports all go down."""
    files = {
        "__init__.py": "",
        "roof/__init__.py": "",
        "roof/look.py": "from house.hall import table\nfrom house import ground\n",
        "hall/__init__.py": "from house.hall.table import lay\n",
        "hall/table.py": "import house.ground\ndef lay():\n    from house.den import fire\n",
        "den/__init__.py": "",
        "den/fire.py": "import os\nfrom ..ground import stone\n",
        "ground.py": "stone = 1\n",
    }
    for name, text in files.items():
        path = tmp_path / "house" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "house"


def test_the_package_keeps_to_its_floors() -> None:
    assert faults(ROOT / "cua_lab", read_floors(ROOT / "pyproject.toml")) == []


def test_imports_that_go_down_or_stay_are_in_order(house: Path) -> None:
    assert faults(house, FLOORS) == []


@pytest.mark.parametrize(
    "text",
    [
        "from house.roof import look\n",
        "from house.roof.look import table\n",
        "import house.roof.look\n",
        "from house import roof\n",
        "from .roof import look\n",
        "def later():\n    from house.roof import look\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.roof import look\n",
        "import importlib\nimportlib.import_module('house.roof.look')\n",
    ],
)
def test_an_arrow_up_is_named_with_its_file_and_line(house: Path, text: str) -> None:
    (house / "ground.py").write_text(text)
    line = text.count("\n")
    (fault,) = [f for f in faults(house, FLOORS) if not f.startswith("circle")]
    assert fault.startswith(f"house/ground.py:{line}: ground imports house.roof")
    assert fault.endswith("roof is above it")


def test_a_circle_of_files_in_one_room_is_found_however_long(house: Path) -> None:
    (house / "den/fire.py").write_text("from house.den import wood\n")
    (house / "den/wood.py").write_text("def cut():\n    from house.den.axe import edge\n")
    (house / "den/axe.py").write_text("from house.den.fire import iron\n")
    (fault,) = faults(house, FLOORS)
    assert fault == (
        "circle: house.den.axe (house/den/axe.py:1) -> house.den.fire (house/den/fire.py:1)"
        " -> house.den.wood (house/den/wood.py:2) -> house.den.axe"
    )


def test_two_circles_are_two_faults(house: Path) -> None:
    for room in ("den", "hall"):
        (house / room / "one.py").write_text(f"from house.{room} import two\n")
        (house / room / "two.py").write_text(f"from house.{room} import one\n")
    assert len([f for f in faults(house, FLOORS) if f.startswith("circle")]) == 2


def test_a_folder_that_gathers_its_own_modules_is_no_circle(house: Path) -> None:
    (house / "hall/table.py").write_text("from house.hall import plate\n")
    assert faults(house, FLOORS) == []


def test_a_room_without_a_floor_and_a_floor_without_a_room_are_told(house: Path) -> None:
    (house / "attic.py").write_text("")
    found = faults(house, [["roof"], ["hall", "den", "cellar"], ["ground", "den"]])
    assert found == [
        "room 'attic' stands on no floor; add it",
        "the floors name 'cellar', and there is no such room",
        "the floors name 'den' twice",
    ]


def test_the_picture_has_every_room_once_in_the_order_of_the_floors() -> None:
    tree = ElementTree.fromstring(as_svg(FLOORS))
    names = [text.text for text in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert names == ["roof", "hall", "den", "ground"]
    assert "roof; hall, den; ground" in tree.attrib["aria-label"]
    assert [line.strip("| ") for line in as_text(FLOORS).splitlines()[1:-1]] == [
        "roof",
        "hall   den",
        "ground",
    ]


def test_the_readmes_picture_is_of_todays_floors() -> None:
    assert PICTURE.read_text() == as_svg(read_floors(ROOT / "pyproject.toml")), (
        "docs/floors.svg is old: python tools/draw_floors.py --write"
    )
