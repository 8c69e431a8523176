"""Everything an episode will need, looked at before a GPU is claimed.

Inside Miles each of these faults would fail every episode and the batch would be refilled in
silence. A `Check` says what was seen and how to fix it. Invariant: every check is made, whatever
the others found, so that one look lists all that is missing; nothing is started or claimed, and no
secret is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cua_lab.checks import Check
from cua_lab.errors import LabError
from cua_lab.miles import checks_numbers as numbers
from cua_lab.miles import checks_software as software
from cua_lab.miles import checks_tasks as tasks
from cua_lab.miles.recipe import MilesRecipe


def preflight(recipe: MilesRecipe, *, trains: bool = True) -> list[Check]:
    """Every check, in the order of the report; fewer for a run that only plays."""
    looks: tuple[Callable[[MilesRecipe], Iterator[Check]], ...] = (
        software.sdks,
        software.engine,
        software.miles,
        software.transformers,
        software.wandb,
        software.gpus,
        tasks.credentials,
        tasks.env_package,
        tasks.rows,
        tasks.screens,
        numbers.model,
        numbers.context,
        *((numbers.batch, numbers.timeout) if trains else ()),
        numbers.disk,
        *((numbers.trainer,) if trains else ()),
    )
    return [check for look in looks for check in _complete(look, recipe)]


def _complete(
    look: Callable[[MilesRecipe], Iterator[Check]], recipe: MilesRecipe
) -> Iterator[Check]:
    """The look's checks; a user's mistake or a missing package ends this look, not the others."""
    name = look.__name__.replace("_", " ")
    try:
        yield from look(recipe)
    except LabError as error:
        yield Check(name, "fail", str(error), "as it says")
    except ModuleNotFoundError as error:
        yield Check(name, "fail", f"{error.name} is not installed", f"pip install {error.name}")
