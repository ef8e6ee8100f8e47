"""The demonstration corpus: docstrings of the standard library and of numpy, read where it runs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import io
import os
import pkgutil
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

# Modules that print, open a window or a browser, take over the terminal, or are test suites.
_SIDE_EFFECTS = {
    "antigravity", "this", "idlelib", "test", "turtledemo", "lib2to3", "rlcompleter", "readline",
    "ensurepip", "pydoc_data",
}  # fmt: skip
# Modules that only some machines have; without them the corpus is the same on most machines.
_NOT_EVERYWHERE = {
    "tkinter", "turtle", "curses", "msilib", "msvcrt", "winreg", "winsound", "nt", "posix",
    "ntpath", "posixpath", "genericpath", "nturl2path", "ossaudiodev", "spwd", "nis", "dbm.gnu",
    "dbm.ndbm", "asyncio.windows_events", "asyncio.windows_utils", "asyncio.unix_events",
    "multiprocessing.popen_fork", "multiprocessing.popen_forkserver",
    "multiprocessing.popen_spawn_posix", "multiprocessing.popen_spawn_win32", "ctypes.wintypes",
    "ctypes.macholib",
}  # fmt: skip
# Modules that newer Pythons no longer have, or keep only as a warning.
_REMOVED = {
    "aifc", "asynchat", "asyncore", "audioop", "cgi", "cgitb", "chunk", "crypt", "distutils",
    "imghdr", "imp", "mailcap", "nntplib", "pipes", "smtpd", "sndhdr", "sre_compile",
    "sre_constants", "sre_parse", "sunau", "telnetlib", "uu", "xdrlib",
}  # fmt: skip
# Modules whose functions serve other modules; nobody looks for them.
_INTERNAL = {
    "json.scanner", "multiprocessing.forkserver", "multiprocessing.resource_sharer",
    "multiprocessing.resource_tracker", "multiprocessing.spawn", "pydoc", "unittest.util",
}  # fmt: skip
_SKIPPED = _SIDE_EFFECTS | _NOT_EVERYWHERE | _REMOVED | _INTERNAL
# Packages whose submodules are tables or code pages, not documentation.
_NO_SUBMODULES = {"encodings"}
_NUMPY = (
    "numpy", "numpy.char", "numpy.ctypeslib", "numpy.emath", "numpy.exceptions", "numpy.fft",
    "numpy.lib", "numpy.lib.format", "numpy.lib.mixins", "numpy.lib.npyio", "numpy.lib.scimath",
    "numpy.lib.stride_tricks", "numpy.lib.introspect", "numpy.linalg", "numpy.ma",
    "numpy.polynomial", "numpy.polynomial.chebyshev", "numpy.polynomial.hermite",
    "numpy.polynomial.hermite_e", "numpy.polynomial.laguerre", "numpy.polynomial.legendre",
    "numpy.polynomial.polynomial", "numpy.polynomial.polyutils", "numpy.random", "numpy.rec",
    "numpy.strings", "numpy.testing", "numpy.typing",
)  # fmt: skip
# Docstrings that the interpreter or a base class writes and that say nothing about the object.
_TRIVIAL = re.compile(
    r"Alias for field number|Initialize self\.|Create and return a new object|Return repr\(self\)"
    r"|An enumeration\.$|Scalar (method|attribute) identical|partial\(func|Abstract method\.?$"
    r"|The most base type|list of weak references to the object|Internal[ :.]|Helper for |Private"
)
# A section of a numpy docstring that holds code or cross references instead of a description.
_NUMPY_TAIL = re.compile(
    r"^\s*(Examples?|References|See Also|Notes|Methods)\n\s*-{3,}", re.MULTILINE
)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_LONGEST_TEXT = 1200


def corpus() -> tuple[list[str], list[str]]:
    """Return (ids, texts) of the documentation of this Python and numpy, sorted by id.

    An id is the public qualified name ("str.split", "collections.Counter.most_common"); a text is
    that name with its parameters, and the docstring. Nothing is downloaded; the entries differ a
    little between versions of Python and numpy.
    """
    with _quietly():
        names = _canonical_names()
        texts = {name: text for name, obj in names if (text := _text(name, obj))}
    first = {text: name for name, text in sorted(texts.items(), reverse=True)}
    ids = sorted(first.values())
    return ids, [texts[name] for name in ids]


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Importing everything must not show: old modules warn, and some could print."""
    sink = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(sink),
        contextlib.redirect_stderr(sink),
    ):
        warnings.simplefilter("ignore")
        yield


def _canonical_names() -> list[tuple[str, Any]]:
    """Every object that can be documented, once, under the best of the names that lead to it."""
    found: dict[int, tuple[Any, list[str]]] = {}
    for module_name, module in _modules():
        if module_name != "builtins":
            _offer(found, module_name, module)
        for name, obj in _public_objects(module_name, module):
            _offer(found, name, obj)
    classes = {
        obj: min(names, key=functools.partial(_rank, obj))
        for obj, names in found.values()
        if inspect.isclass(obj)
    }
    # Bases come before their subclasses, so that a method of a base without a public name is
    # listed at the first public class below it, and only there.
    for cls in sorted(classes, key=lambda cls: (len(inspect.getmro(cls)), classes[cls])):
        for name, member, is_own in _members(cls, set(classes)):
            if is_own or id(_identity(member)) not in found:
                _offer(found, f"{classes[cls]}.{name}", member)
    return [(min(names, key=functools.partial(_rank, obj)), obj) for obj, names in found.values()]


def _offer(found: dict[int, tuple[Any, list[str]]], name: str, obj: Any) -> None:
    key = _identity(obj)
    # The object is kept beside its id, so that the id cannot be given to another object.
    found.setdefault(id(key), (key, []))[1].append(name)


def _rank(obj: Any, name: str) -> tuple[bool, int, int, str]:
    """Order the names of one object: its own name first, then the shortest way to it."""
    own = _attribute(obj, "__name__")
    return (name.rpartition(".")[2] != own, name.count("."), len(name), name)


def _identity(obj: Any) -> Any:
    """The object behind a bound method or a wrapper, which is the same under every name."""
    if isinstance(obj, (staticmethod, classmethod)):
        return obj.__func__
    owner = _attribute(obj, "__self__")
    if inspect.ismethod(obj):
        return obj.__func__
    if inspect.isbuiltin(obj) and owner is not None and not inspect.ismodule(owner):
        # random.random is a method of a hidden instance; its class lists the same method.
        return getattr(type(owner), obj.__name__, obj)
    return obj


def _modules() -> Iterator[tuple[str, ModuleType]]:
    for top in sorted(sys.stdlib_module_names):
        if _is_public(top) and top not in _SKIPPED and _is_from_stdlib(top):
            yield from _package(top)
    path = _import("os.path")
    if path is not None:
        yield "os.path", path
    for name in _NUMPY:
        module = _import(name)
        if module is not None:
            yield name, module


def _package(name: str) -> Iterator[tuple[str, ModuleType]]:
    module = _import(name)
    if module is None:
        return
    yield name, module
    if name in _NO_SUBMODULES:
        return
    for child in pkgutil.iter_modules(getattr(module, "__path__", [])):
        full = f"{name}.{child.name}"
        if _is_public(full) and full not in _SKIPPED and child.name not in {"test", "tests"}:
            yield from _package(full)


def _import(name: str) -> ModuleType | None:
    """Import a module, or None: optional ones are missing on some machines."""
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit):
        return None


def _is_public(name: str) -> bool:
    return not any(part.startswith("_") for part in name.split("."))


def _is_from_stdlib(name: str) -> bool:
    """A user's own `calendar.py` in the working directory must not be imported by a demo."""
    try:
        spec = importlib.util.find_spec(name)
    except (Exception, SystemExit):
        return False
    if spec is None or spec.origin is None:
        return False
    if spec.origin in {"built-in", "frozen"}:
        return True
    roots = (
        os.path.dirname(os.__file__),
        sysconfig.get_path("platstdlib"),
        # Where Windows keeps the modules that are written in C.
        os.path.join(sys.base_exec_prefix, "DLLs"),
    )
    origin = os.path.realpath(spec.origin)
    return any(origin.startswith(os.path.realpath(root) + os.sep) for root in roots)


def _public_objects(module_name: str, module: ModuleType) -> Iterator[tuple[str, Any]]:
    listed = set(getattr(module, "__all__", ()))
    for name in sorted(listed | set(vars(module))):
        if not _is_public(name):
            continue
        obj = _attribute(module, name)
        if not _can_be_documented(obj) or inspect.ismodule(obj):
            continue
        if name not in listed and not _belongs(obj, module_name):
            continue
        yield (name if module_name == "builtins" else f"{module_name}.{name}"), obj


def _attribute(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name, None)
    except Exception:
        return None


def _belongs(obj: Any, module_name: str) -> bool:
    """Beside `__all__`, a module's own objects are those that it, or its C half, defines."""
    if module_name == "builtins":
        return inspect.isclass(obj) or inspect.isbuiltin(obj)
    home = _attribute(obj, "__module__")
    return isinstance(home, str) and home.lstrip("_") == module_name


def _can_be_documented(obj: Any) -> bool:
    """Classes, functions and callables with a docstring of their own; no plain values."""
    if inspect.isclass(obj):
        return True
    return callable(obj) and _docstring(obj) not in {"", _docstring(type(obj))}


def _members(cls: type, public: set[type]) -> Iterator[tuple[str, Any, bool]]:
    """(name, member, is its own) of what the class defines or gets from a base without public name.

    An override that repeats the docstring of a public base is left out.
    """
    bases = inspect.getmro(cls)[1:]
    # What a public base defines or gets itself is listed there.
    listed_there = {base for shown in bases if shown in public for base in inspect.getmro(shown)}
    seen: set[str] = set()
    for definer in (cls, *(base for base in bases if base not in listed_there)):
        if definer is object:
            continue
        for name, member in sorted(vars(definer).items(), key=lambda item: str(item[0])):
            if not _is_public(name) or not _is_member(member) or name in seen:
                continue
            seen.add(name)
            doc = _docstring(member)
            if doc and all(_docstring(vars(base).get(name)) != doc for base in listed_there):
                yield name, member, definer is cls


def _is_member(member: Any) -> bool:
    return (
        isinstance(member, (staticmethod, classmethod, property, functools.cached_property))
        or inspect.isroutine(member)
        or inspect.isdatadescriptor(member)
    )


def _docstring(obj: Any) -> str:
    # The docstring of None, from Python 3.13 on, is never meant here.
    doc = None if obj is None else _attribute(obj, "__doc__")
    return inspect.cleandoc(doc) if isinstance(doc, str) else ""


def _text(name: str, obj: Any) -> str:
    """The text of one entry, or nothing where the docstring is empty or boilerplate."""
    doc = _docstring(obj)
    if inspect.isclass(obj):
        if _is_generated(obj, doc) or doc == _inherited_class_doc(obj):
            doc = ""
        init = _docstring(vars(obj).get("__init__"))
        if init and not _TRIVIAL.match(init):
            doc = f"{doc}\n\n{init}".strip()
    if len(doc) < 8 or _TRIVIAL.match(doc):
        return ""
    tail = _NUMPY_TAIL.search(doc)
    if tail and tail.start() > 0:
        doc = doc[: tail.start()].rstrip()
    doc = _ADDRESS.sub("", doc)
    # Docstrings of C functions start with the call; the heading has it already.
    call = re.match(rf"[\w.]*\b{re.escape(name.rpartition('.')[2])}\(.*(\n\s*|$)", doc)
    if call and call.end() < len(doc):
        doc = doc[call.end() :]
    if len(doc) > _LONGEST_TEXT:
        doc = doc[:_LONGEST_TEXT].rsplit(None, 1)[0]
    return f"{name}{_parameters(obj)}\n{doc}"


def _is_generated(cls: type, doc: str) -> bool:
    """Dataclasses and named tuples without a docstring get their signature as one."""
    made = dataclasses.is_dataclass(cls) or hasattr(cls, "_fields")
    return made and "\n" not in doc and doc.startswith(f"{cls.__name__}(")


def _inherited_class_doc(cls: type) -> str | None:
    """C types can carry the docstring of their base; then it says nothing about the subclass."""
    bases = inspect.getmro(cls)[1:]
    return _docstring(bases[0]) if bases and bases[0] is not object else None


def _parameters(obj: Any) -> str:
    """The names of the parameters; defaults and annotations would differ between versions."""
    if inspect.ismodule(obj) or not callable(obj):
        return ""
    try:
        names = list(inspect.signature(obj).parameters)
    except Exception:
        return ""
    named = [name for name in names if name not in {"self", "cls"} and _is_public(name)]
    return f"({', '.join(named)})"
