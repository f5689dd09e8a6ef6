"""The page of Python: every public name of `penstock` with its signature and docstring, by what people do with it.

Signatures are written by our own few lines, because `inspect`'s text quotes annotations and differs between versions of
Python. A name that no group knows yet comes last, so that no export is missing (tests/unit/test_reference.py).
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from types import ModuleType

import penstock
from penstock import deploy
from penstock.errors import PenstockError
from penstock.flow.region import RegionStream

WIDTH_MAX = 100  # of a signature on one line
HEAD = """\
# Python

Made from the code by `make reference`; do not edit.

Names of `import penstock as ps`, and at the end what `penstock.deploy` adds for sessions and jobs.
[errors.md](errors.md) has the errors; the [guide](../guide/README.md) says when to use what.
"""
GROUPS = {
    "Writing a topology": ("Topology", "DataStream", "KeyedStream", "Stateful", "Row", "tumbling", "sliding"),
    "Sources and sinks: `ps.io`": ("io",),
    "Jobs": ("Job",),
    "Plans": ("place", "compare", "fuse", "check_plan", "Options", "FuseOptions", "Plan", "Slot"),
    "The model": ("OperatorGraph", "Operator", "Stream", "Cluster", "Node", "Profile", "TaskProfile", "EdgeProfile"),
    "Constraints": ("Resource", "Together", "Apart", "Replicas", "Dedicated"),
    "Files": ("read_topology", "read_cluster", "parse_cluster", "read_profile", "read_plan", "write_plan"),
}
DEPLOY = ("local_session", "Replan")  # what is there for users and not in `penstock`
STARS: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
# Methods that other parts of Penstock call and users do not, and fields of streams that users read in messages alone.
INSIDE = frozenset({"add", "attach", "add_event_time", "edition", "operator", "free_name", "begin", "then", "read"})
INSIDE |= frozenset({"require_current", "regrouped", "side", "event_column", "event_time_of"})


def python_page() -> str:
    """The page."""
    parts = [HEAD]
    left = [name for name in penstock.__all__ if not _is_error(getattr(penstock, name))]
    for title, names in GROUPS.items():
        here = [name for name in names if name in left]
        left = [name for name in left if name not in here]
        parts += _group(title, [("ps." + name, getattr(penstock, name)) for name in here])
        if "DataStream" in here:
            parts += _entry("RegionStream", RegionStream, inherited=False)
    parts += _group("Other names", [("ps." + name, getattr(penstock, name)) for name in left])
    more = [name for name in DEPLOY if hasattr(deploy, name) and name not in penstock.__all__]
    parts += _group("Sessions and jobs: `penstock.deploy`", [(name, getattr(deploy, name)) for name in more])
    return "\n".join(parts)


def _is_error(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, PenstockError)


def _group(title: str, named: list[tuple[str, object]]) -> list[str]:
    found = [line for name, thing in named for line in _entry(name, thing)]
    return [f"## {title}\n", *found] if found else []


def _entry(name: str, thing: object, *, inherited: bool = True) -> Iterator[str]:
    """A name with everything under it."""
    if isinstance(thing, ModuleType):
        for part in (part for part in thing.__all__ if inspect.isfunction(getattr(thing, part))):
            yield from _entry(f"{name}.{part}", getattr(thing, part))
        return
    yield f"### {name}\n"
    if isinstance(thing, type):
        yield from _class(name, thing, inherited=inherited)
    elif callable(thing):
        yield _code(_signature(name, thing))
        yield _text(thing.__doc__)


def _class(name: str, thing: type, *, inherited: bool) -> Iterator[str]:
    shown = f"class {name}"
    if dataclasses.is_dataclass(thing) and not _has_topology(thing):
        yield _code(_signature(shown, thing, skip_first=False))
    yield _text(thing.__doc__)
    for member, value in _members(thing, inherited=inherited):
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if isinstance(value, property):
            yield f"**`.{member}`**{_returned(value.fget)}\n"
            yield _text(value.__doc__)
        elif inspect.isfunction(function):
            call = f"{name}.{member}" if isinstance(value, classmethod | staticmethod) else f".{member}"
            yield _code(_signature(call, function, skip_first=not isinstance(value, staticmethod)))
            yield _text(function.__doc__)


def _has_topology(thing: type) -> bool:
    """Whether topologies, and not users, make objects of a class."""
    return any(field.name in {"topology", "stream"} for field in dataclasses.fields(thing))


def _members(thing: type, *, inherited: bool) -> list[tuple[str, object]]:
    """Public methods and properties, those of the class's own bases in Penstock included, in order of definition."""
    found: dict[str, object] = {}
    for kind in thing.__mro__ if inherited else (thing,):
        if kind.__module__.startswith("penstock"):
            for name, value in vars(kind).items():
                if not name.startswith("_") and name not in INSIDE and not _is_refused(value):
                    found.setdefault(name, value)
    return list(found.items())


def _is_refused(value: object) -> bool:
    """Whether a method is there to say why it cannot be called."""
    return (getattr(value, "__doc__", None) or "").startswith("Refused:")


def _signature(name: str, function: Callable[..., object], *, skip_first: bool = False) -> str:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of the core's own types
        return name
    parameters = list(signature.parameters.values())[1 if skip_first else 0 :]
    words: list[str] = []
    starred = False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            starred = True
        elif parameter.kind is parameter.KEYWORD_ONLY and not starred:
            words.append("*")
            starred = True
        words.append(_parameter(parameter))
    end = "" if name.startswith("class ") else _arrow(signature.return_annotation)
    line = f"{name}({', '.join(words)}){end}"
    if len(line) <= WIDTH_MAX:
        return line
    return f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){end}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = STARS.get(parameter.kind, "")
    typed = "" if parameter.annotation is parameter.empty else f": {_annotation(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}{typed}"
    return f"{stars}{parameter.name}{typed}{' = ' if typed else '='}{_default(parameter.default)}"


def _annotation(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _default(value: object) -> str:
    """A default that reads the same in every process."""
    named = getattr(value, "__name__", "<") if callable(value) else repr(value)
    return "..." if "<" in named else named  # a function without a name, or what is made anew for each object


def _arrow(annotation: object) -> str:
    return "" if annotation is inspect.Signature.empty else f" -> {_annotation(annotation)}"


def _returned(function: Callable[..., object] | None) -> str:
    if function is None:
        return ""
    annotation = inspect.signature(function).return_annotation
    return "" if annotation is inspect.Signature.empty else f": `{_annotation(annotation)}`"


def _code(text: str) -> str:
    return f"```python\n{text}\n```\n"


def _text(doc: str | None) -> str:
    """A docstring as Markdown: examples become blocks of code, everything else stays."""
    paragraphs = inspect.cleandoc(doc or "").split("\n\n")
    return "\n\n".join(_paragraph(text) for text in _joined(paragraphs)) + "\n"


def _joined(paragraphs: list[str]) -> list[str]:
    """Paragraphs, with the parts of one indented example put together."""
    found: list[str] = []
    for text in paragraphs:
        if found and text.startswith("    ") and found[-1].startswith("    "):
            found[-1] += "\n\n" + text
        else:
            found.append(text)
    return found


def _paragraph(text: str) -> str:
    if text.startswith((">>>", "    ")):
        return f"```python\n{inspect.cleandoc(text) if text.startswith('>>>') else _undented(text)}\n```"
    return text


def _undented(text: str) -> str:
    return "\n".join(line[4:] if line.startswith("    ") else line for line in text.split("\n"))
