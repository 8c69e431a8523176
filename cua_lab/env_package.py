"""An `EnvPackage` is what the lab knows of a HUD env: one contract, found by one resolver.

    "lab" | "cua_lab.envs.lab" | "my.package" | folder | env.py ─┐
    tcp://host:port | docker://image (a server says what it is) ─┴─env_package()──▶  EnvPackage

HUD asks for an `env.py` with an `Environment` in it, and nothing else. All the rest is optional and
has a neutral meaning where it is missing: `build` (a new env per episode), `NAME`, `MOST_AT_ONCE`,
`TOOL`, a `tasks.py` with `tasks` and `split`, a `players.py`, a `Dockerfile.hud`.

Invariant: a package that resolves has an `Environment` with at least one template; every mistake is
one `LabError` that says what was looked for and where.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cua_lab.errors import LabError
from cua_lab.served_env import ServedName, is_served, served_environment

if TYPE_CHECKING:
    from types import ModuleType

    from hud.environment import Environment
    from hud.eval import Task

SHORT_NAMES = ("lab", "browser", "miniwob", "injection")
"""The lab's own packages, on a command line: `miniwob` is `cua_lab.envs.miniwob`."""
DOCKERFILE = "Dockerfile.hud"
V5 = "it looks like a package of HUD v5; v6 envs have functions under @env.template"


@dataclass(frozen=True, slots=True)
class EnvPackage:
    """A HUD env package; made by `env_package`."""

    source: str
    """As error messages say it: a dotted name or a path."""
    folder: Path
    env_file: Path
    name: str
    """`Environment.name`: the `env` of a task row."""
    env: Environment = field(repr=False)
    """The module's own env object: one episode at a time."""
    build: Callable[[Task | None], Environment] | None = field(repr=False, default=None)
    """A new env for each episode; `None` where the package has only the one object."""
    most_at_once: int | None = None
    """Episodes that one process can play at a time; `None`: as many as are asked for."""
    tool: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `ToolConfig` that its screens ask for, such as how to settle."""
    tasks: tuple[Task, ...] = field(repr=False, default=())
    """The public tasks; without a tasks.py one of each template that needs no argument."""
    split: Callable[[str], list[Task]] | None = field(repr=False, default=None)
    """The package's own sets of tasks, by name."""
    players: str | Path | None = None
    """Dotted name, or file, of the module with its scripted players."""
    served: ServedName | None = None
    """Where it is served, of a package whose code is not here."""

    @property
    def templates(self) -> Mapping[str, Any]:
        """HUD's templates by id."""
        return self.env.templates

    def check_concurrency(self, asked: int, option: str) -> None:
        """Refuse more episodes at a time than one process of this env can play."""
        if self.most_at_once is not None and asked > self.most_at_once:
            if self.served is not None:
                raise LabError(
                    f"{self.source} is one server with one screen; got {option} {asked}: set it to"
                    " 1, or give an image (docker://...), which starts a container an episode"
                )
            raise LabError(
                f"{self.source} plays at most {self.most_at_once} episodes at a time in one"
                f" process, each in a browser of its own; got {option} {asked}: lower it, or give"
                " more processes with runtime: subprocess"
            )

    def public_tasks(self) -> list[Task]:
        """The public tasks; raises `LabError` where there are none to choose from."""
        if not self.tasks:
            raise LabError(
                f"{self.source} has no tasks.py with tasks in it, and no template that needs no"
                " argument: there is nothing to mint; its templates are "
                f"{', '.join(self.templates)}"
            )
        return list(self.tasks)


def package_folder(source: str | Path) -> Path:
    """The folder of an env package, without importing anything of it."""
    source = str(source)
    if is_served(source):
        raise LabError(f"{source} is served elsewhere; this needs the package's folder")
    if _looks_like_a_path(source):
        return _env_file(source).parent
    return _folder_of(_dotted(source))


def dockerfile_of(source: str | Path) -> Path:
    """The package's Dockerfile; raises `LabError` where there is none."""
    path = package_folder(source) / DOCKERFILE
    if not path.is_file():
        raise LabError(
            f"{path.parent} has no {DOCKERFILE}, so it runs local or subprocess only; `hud init`"
            f" writes one, and cua_lab/envs/lab/{DOCKERFILE} is an example"
        )
    return path


def env_package(source: str | Path) -> EnvPackage:
    """The env package of a short name, a dotted name, a folder, an env.py, or where one is served:
    tcp://HOST:PORT or docker://IMAGE. Raises `LabError` where there is none."""
    source = str(source)
    if is_served(source):
        return _served(ServedName(source))
    if _looks_like_a_path(source):
        env_file = _env_file(source)
        tasks_file = env_file.with_name("tasks.py")
        module = load_file(env_file)
        made = load_file(tasks_file) if tasks_file.is_file() else None
        players = env_file.with_name("players.py")
        return _described(
            source,
            env_file.parent,
            module,
            made,
            players if players.is_file() else None,
        )
    dotted = _dotted(source)
    folder = _folder_of(dotted)
    env = _import_part(dotted, "env")
    if env is None:
        raise LabError(f"no HUD env package {dotted!r}: {folder} has no env.py")
    tasks = _import_part(dotted, "tasks")
    return _described(dotted, folder, env, tasks, _players_name(dotted))


def _served(name: ServedName) -> EnvPackage:
    """What a server says of itself; each template whose arguments all have defaults is a task."""
    env = served_environment(name)
    if not env.templates:
        raise LabError(f"{name.source} serves the env {env.name!r}, which has no template")
    nowhere = Path(name.source)  # no file is ever read from there
    return EnvPackage(
        source=name.source,
        folder=nowhere,
        env_file=nowhere,
        name=env.name,
        env=env,
        most_at_once=1 if name.image is None else None,
        tasks=_tasks_without_choices(env),
        served=name,
    )


def _tasks_without_choices(env: Environment) -> tuple[Task, ...]:
    """A task of each template that needs no argument."""
    made = []
    for id, template in env.templates.items():
        needed = [
            p for p in template.sig.parameters.values() if p.default is inspect.Parameter.empty
        ]
        if not needed:
            made.append(template().model_copy(update={"slug": id}))
    return tuple(made)


def _dotted(source: str) -> str:
    return f"cua_lab.envs.{source}" if source in SHORT_NAMES else source


def _env_file(source: str) -> Path:
    path = Path(source).resolve()
    file = path / "env.py" if path.is_dir() else path
    if not file.is_file():
        raise LabError(f"no HUD env package at {source!r}: no {file.name} in {file.parent}")
    return file


def _looks_like_a_path(source: str) -> bool:
    """A path has a separator or an ending, or is a folder here that holds an env.py."""
    if source in SHORT_NAMES:
        return False
    return "/" in source or source.endswith(".py") or Path(source, "env.py").is_file()


def _folder_of(dotted: str) -> Path:
    try:
        spec = importlib.util.find_spec(dotted)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise LabError(
            f"no HUD env package {dotted!r}: give {', '.join(SHORT_NAMES)}, the dotted name of a"
            " package of your own such as cua_lab.envs.lab, or the path of a folder with an env.py"
        )
    return Path(next(iter(spec.submodule_search_locations))).resolve()


def _import_part(dotted: str, part: str) -> ModuleType | None:
    """`package.env` or `package.tasks`; `None` where the package has no such file."""
    name = f"{dotted}.{part}"
    if importlib.util.find_spec(name) is None:
        return None
    with _loading(name):
        return importlib.import_module(name)


def load_file(file: Path) -> ModuleType:
    """A module of somebody's package, by its file; raises `LabError` where it cannot be loaded."""
    from hud.utils.modules import load_module

    with _loading(file):
        return load_module(file)


@contextmanager
def _loading(source: str | Path) -> Iterator[None]:
    """Whatever goes wrong in somebody's package is named with it, such as one of HUD's v5."""
    try:
        yield
    except LabError:
        raise
    except ModuleNotFoundError as error:
        old = f": {V5}" if (error.name or "").startswith("hud.") else ""
        raise LabError(
            f"{source} needs the module {error.name!r}, which is not installed{old}"
        ) from error
    except Exception as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        if isinstance(error, AttributeError) and "'Environment' object" in what:
            raise LabError(f"{source} cannot be loaded ({what}): {V5}") from error
        raise LabError(
            f"{source} cannot be loaded as a part of a HUD env package ({what}); env.py should"
            " hold a HUD v6 Environment, tasks.py a list `tasks` made with its templates"
        ) from error


def _players_name(dotted: str) -> str | None:
    """The lab's own players live a floor above its envs; others bring a players.py."""
    short = dotted.removeprefix("cua_lab.envs.")
    if short in SHORT_NAMES:
        return f"cua_lab.demonstrators.{short}"
    name = f"{dotted}.players"
    return name if importlib.util.find_spec(name) is not None else None


def _described(
    source: str,
    folder: Path,
    env_module: ModuleType,
    tasks_module: ModuleType | None,
    players: str | Path | None,
) -> EnvPackage:
    env = _environment_in(env_module, source)
    return EnvPackage(
        source=source,
        folder=folder,
        env_file=Path(env_module.__file__ or folder / "env.py"),
        name=getattr(env_module, "NAME", env.name),
        env=env,
        build=getattr(env_module, "build", None),
        most_at_once=getattr(env_module, "MOST_AT_ONCE", None),
        tool=dict(getattr(env_module, "TOOL", {})),
        tasks=_tasks_without_choices(env)
        if tasks_module is None
        else _tasks_in(tasks_module, source),
        split=getattr(tasks_module, "split", None),
        players=players,
    )


def _environment_in(module: ModuleType, source: str) -> Environment:
    """The module's `env`, or the only `Environment` that it holds."""
    from hud.environment import Environment

    named = getattr(module, "env", None)
    if isinstance(named, Environment):
        return named
    found = [value for value in vars(module).values() if isinstance(value, Environment)]
    if len(found) != 1:
        raise LabError(
            f"{source}/env.py holds {len(found)} HUD environments; it should hold one, named `env`"
        )
    return found[0]


def _tasks_in(module: ModuleType, source: str) -> tuple[Task, ...]:
    from hud.eval import Task

    tasks = getattr(module, "tasks", None)
    if not isinstance(tasks, list | tuple) or not all(isinstance(t, Task) for t in tasks):
        raise LabError(f"{source}/tasks.py has no list named `tasks` with HUD tasks in it")
    return tuple(tasks)
