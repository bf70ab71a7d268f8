"""Loading memory systems that are not ours: `path/to/file.py:Class` and entry points."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from types import ModuleType

from pydantic import JsonValue, ValidationError

from memprobe.dataset import explain
from memprobe.errors import AdapterContractError, AdapterError, UsageError
from memprobe.ports import Capabilities, MemorySystem
from memprobe.systems import Services, SystemCard, SystemOptions
from memprobe.types import Protocol

GROUP = "memprobe.memory_systems"
METHODS = ("open", "write", "search", "dump", "save", "restore", "close")
_SPEC = re.compile(r"(?P<path>.+\.py):(?P<attribute>[^:/\\]+)\Z")


def is_path_spec(name: str) -> bool:
    """Whether a system is named by its file."""
    return name.endswith(".py") or _SPEC.match(name) is not None


def plugins() -> dict[str, EntryPoint]:
    """Entry points of installed packages by name; of two with one name the first stays."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        found.setdefault(entry.name, entry)
    return found


def snake(name: str) -> str:
    """`MyMemory` as `my_memory`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def load_path(spec: str) -> type:
    """The class that `path/to/file.py:Class` names.

    The module gets a name of its own and the file's folder is not put on the
    import path. Raises `UsageError` when there is no such file or class, and
    `AdapterError` when the file fails to import.
    """
    match = _SPEC.match(spec)
    path = Path(match["path"] if match else spec).expanduser()
    if not path.is_file():
        raise UsageError(f"{spec}: there is no file {path} (looked from {Path.cwd()})")
    module = _module(path.resolve(), spec)
    if match is None:
        raise UsageError(f"{spec}: name the class as well: {spec}:{_classes(module)}")
    found = getattr(module, match["attribute"], None)
    if not inspect.isclass(found):
        raise UsageError(
            f"{spec}: {path.name} has no class {match['attribute']!r}; it has {_classes(module)}"
        )
    return found


def _classes(module: ModuleType) -> str:
    own = [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and value.__module__ == module.__name__
        and not issubclass(value, SystemOptions)
    ]
    return ", ".join(own) or "no class"


def _module(path: Path, spec: str) -> ModuleType:
    # The content is part of the name, so that an edited file is loaded anew.
    digest = hashlib.sha256(path.as_posix().encode() + b"\0" + path.read_bytes()).hexdigest()
    name = f"memprobe_external_{digest[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    plan = importlib.util.spec_from_file_location(name, path)
    if plan is None or plan.loader is None:
        raise UsageError(f"{spec}: {path} is not a Python file")
    module = importlib.util.module_from_spec(plan)
    sys.modules[name] = module
    try:
        plan.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception):
            raise
        raise AdapterError(f"{spec} failed to import: {_explain(error, path)}") from error
    return module


def _explain(error: Exception, path: Path) -> str:
    text = f"{type(error).__name__}: {error}"
    if not isinstance(error, ImportError):
        return text
    sibling = error.name is not None and any(
        (path.parent / f"{error.name.partition('.')[0]}{end}").exists() for end in (".py", "")
    )
    if sibling or "relative import" in str(error):
        return (
            f"{text}. A system named by its file stands alone; to import files beside it, "
            f"install them as a package and register the class as entry point {GROUP!r}"
        )
    return text


def load_plugin(entry: EntryPoint) -> type:
    """The class of an entry point; raises `AdapterError` when it cannot be had."""
    try:
        found = entry.load()
    except Exception as error:
        raise AdapterError(
            f"plug-in {entry.name!r} ({entry.value}) failed to import: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not inspect.isclass(found):
        raise AdapterContractError(f"plug-in {entry.name!r} ({entry.value}) is not a class")
    return found


def check_class(cls: type, origin: str) -> None:
    """Raise `AdapterContractError` naming every method that is missing or not `async`."""
    missing = [m for m in METHODS if not callable(getattr(cls, m, None))]
    plain = [
        m
        for m in METHODS
        if inspect.isfunction(f := inspect.unwrap(getattr(cls, m, len)))
        and not inspect.iscoroutinefunction(f)
    ]
    faults = []
    if missing:
        faults.append(f"missing: {', '.join(missing)}")
    if plain:
        faults.append(f"must be `async def`: {', '.join(plain)}")
    if faults:
        raise AdapterContractError(
            f"{origin} is not a memory system ({'; '.join(faults)}); "
            "`memprobe check --help` says how to try one (page plug-in-my-memory-system)"
        )


def card_of(cls: type, name: str, origin: str) -> SystemCard:
    """The class's own card under our name, or one made from its docstring and capabilities."""
    declared = getattr(cls, "capabilities", None)
    card = getattr(cls, "card", None)
    for value, kind in ((declared, Capabilities), (card, SystemCard)):
        if value is not None and not isinstance(value, kind):
            raise AdapterContractError(
                f"{origin}: its {kind.__name__} attribute is a {type(value).__name__}"
            )
    if isinstance(card, SystemCard):
        if declared is not None and declared != card.capabilities:
            raise AdapterContractError(f"{origin}: `capabilities` and `card.capabilities` differ")
        named = {"name": name, "origin": origin, "code": source_digest(cls, origin)}
        return card.model_copy(update=named)
    capabilities = declared if isinstance(declared, Capabilities) else Capabilities()
    doc = cls.__dict__.get("__doc__")
    return SystemCard(
        name=name,
        title=cls.__name__,
        summary=inspect.cleandoc(doc).partition("\n")[0] if doc else f"{origin}, no description",
        licence="not stated",
        capabilities=capabilities,
        retrieve=capabilities.top_k,
        reply_access="retrieve" if capabilities.top_k else "dump_all",
        origin=origin,
        code=source_digest(cls, origin),
    )


def source_digest(cls: type, origin: str) -> str:
    """sha256 of the file that defines a plug-in's class; "" for a built-in system.

    A built-in system changes with the stage's version. What a plug-in imports
    from elsewhere is not covered.
    """
    if origin == "built in":
        return ""
    try:
        source = Path(inspect.getfile(cls)).read_bytes()
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(source).hexdigest()


def options_of(
    cls: type, protocol: Protocol, given: Mapping[str, JsonValue], name: str
) -> SystemOptions:
    """A system's options: its defaults under the protocol, with those that were given.

    Raises `UsageError` naming the option, and `AdapterContractError` when the
    class's `Options` is no `SystemOptions`.
    """
    kind = getattr(cls, "Options", SystemOptions)
    if not (inspect.isclass(kind) and issubclass(kind, SystemOptions)):
        raise AdapterContractError(f"{name}: its `Options` is no subclass of SystemOptions")
    known = sorted(kind.model_fields)
    for key in given:
        if key not in kind.model_fields:
            there = f"it has {', '.join(known)}" if known else "it has none"
            raise UsageError(f"--system-option {name}.{key}: {name} has no such option; {there}")
    defaults = kind.published() if protocol is Protocol.PAPER else {}
    try:
        return kind.model_validate({**defaults, **given})
    except ValidationError as error:
        raise UsageError(f"--system-option {name}.{explain(error)}") from error


def version_of(package: str | None) -> str | None:
    """The installed version of a distribution; None when there is none."""
    try:
        return version(package) if package else None
    except PackageNotFoundError:
        return None


def construct(cls: type, services: Services, origin: str) -> MemorySystem:
    """An unopened object: with `services=` when `__init__` takes it, else with no arguments."""
    try:
        takes_services = "services" in inspect.signature(cls).parameters
        made = cls(services=services) if takes_services else cls()
    except Exception as error:
        raise AdapterError(
            f"{origin}: the class could not be constructed with "
            f"no arguments or `services=`: {type(error).__name__}: {error}"
        ) from error
    system: MemorySystem = made
    return system
