"""Predicates over columns: `lang == "th" and price < 20`, read by a small grammar of our own.

    or       and ("or" and)*
    and      not ("and" not)*
    not      "not" not | "(" or ")" | test
    test     operand (("==" | "=" | "!=" | "<>" | "<" | "<=" | ">" | ">=") operand)+
             column ["not"] "in" "(" value ("," value)* ")"
             value ["not"] "in" column                        a column of lists
             column ["not"] "between" value "and" value
             column "is" ["not"] "null"
             column                                           a column of booleans
    value    "text" | 'text' | number | true | false | $name   the query's own value in its column

A column is a word, or anything between backquotes. Nothing of a predicate is ever run as code. Null
is as in SQL: a comparison with it is neither true nor false, and only what is true is allowed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeAlias

from semrecall.errors import InputError

__all__ = [
    "And",
    "Column",
    "Has",
    "In",
    "Not",
    "Null",
    "Or",
    "Parameter",
    "Predicate",
    "Test",
    "columns_in",
    "filled_in",
    "parameters_in",
    "parse_predicate",
]

Value: TypeAlias = "str | int | float | bool | Parameter"

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\]|\\.|"")*"|'(?:[^'\\]|\\.|'')*')
    | (?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![^\s()\[\],<>=!]))
    | `(?P<column>[^`]+)`
    | \$(?P<parameter>[^\s()\[\],<>=!"'`$]+)
    | (?P<sign><=|>=|==|!=|<>|[=<>()\[\],])
    | (?P<word>[^\s()\[\],<>=!"'`$]+)
    )""",
    re.VERBOSE,
)
_OPERATORS = {"=": "==", "<>": "!="} | {sign: sign for sign in ("==", "!=", "<", "<=", ">", ">=")}
_TURNED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WORDS = {"and", "or", "not", "in", "is", "null", "between", "true", "false"}
_MONGO = {"$eq": "==", "$ne": "!=", "$lt": "<", "$lte": "<=", "$gt": ">", "$gte": ">="}
_EXAMPLE = 'for example: lang == "th" and price < 20'


@dataclass(frozen=True)
class Parameter:
    """The value that each query has in a column of its own."""

    name: str

    def __str__(self) -> str:
        return f"${self.name}"


@dataclass(frozen=True)
class Column:
    """A column of the base."""

    name: str

    def __str__(self) -> str:
        plain = re.fullmatch(r"(?![+-]?\.?[0-9])[^\s()\[\],<>=!\"'`$]+", self.name)
        return self.name if plain and self.name.lower() not in _WORDS else f"`{self.name}`"


@dataclass(frozen=True)
class Test:
    """A column compared with a value; operator: ==, !=, <, <=, > or >=."""

    column: Column
    operator: str
    value: Value

    def __str__(self) -> str:
        return f"{self.column} {self.operator} {_written(self.value)}"


@dataclass(frozen=True)
class In:
    """Whether a column has one of several values."""

    column: Column
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.column} in ({', '.join(map(_written, self.values))})"


@dataclass(frozen=True)
class Has:
    """Whether the list in a column holds a value."""

    column: Column
    value: Value

    def __str__(self) -> str:
        return f"{_written(self.value)} in {self.column}"


@dataclass(frozen=True)
class Null:
    """Whether a column has no value."""

    column: Column

    def __str__(self) -> str:
        return f"{self.column} is null"


@dataclass(frozen=True)
class Not:
    """The opposite; null stays null."""

    part: Predicate

    def __str__(self) -> str:
        return f"not {_inside(self.part)}"


@dataclass(frozen=True)
class And:
    """All of several."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " and ".join(map(_inside, self.parts))


@dataclass(frozen=True)
class Or:
    """At least one of several."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " or ".join(map(_inside, self.parts))


Predicate: TypeAlias = Test | In | Has | Null | Not | And | Or


def parse_predicate(given: str | Mapping[str, Any]) -> Predicate:
    """A predicate from text, or from a mapping as document databases write them.

    {"lang": "th", "price": {"$lt": 20}, "$or": [...]}: all must hold; operators are $eq, $ne, $lt,
    $lte, $gt, $gte, $in, $nin, $not, $and, $or; a list is $in, null is null.

    Printed and parsed again it is the same. Raises InputError saying where it cannot be read.
    """
    if isinstance(given, Mapping):
        return _of_mapping(given, given)
    if not isinstance(given, str):
        raise InputError(
            f"a filter is a {type(given).__name__}; expected a text or a mapping", hint=_EXAMPLE
        )
    return _Reader(given).read()


def columns_in(predicate: Predicate) -> set[str]:
    """The columns that a predicate looks at."""
    if isinstance(predicate, And | Or):
        return set().union(*map(columns_in, predicate.parts))
    if isinstance(predicate, Not):
        return columns_in(predicate.part)
    return {predicate.column.name}


def parameters_in(predicate: Predicate) -> set[str]:
    """The columns of the queries that a predicate takes values from."""
    if isinstance(predicate, And | Or):
        return set().union(*map(parameters_in, predicate.parts))
    if isinstance(predicate, Not):
        return parameters_in(predicate.part)
    if isinstance(predicate, Null):
        return set()
    values = predicate.values if isinstance(predicate, In) else (predicate.value,)
    return {value.name for value in values if isinstance(value, Parameter)}


def filled_in(predicate: Predicate, values: Mapping[str, Any]) -> Predicate:
    """The predicate with the values of one query in place of its parameters."""

    def known(value: Value) -> Value:
        return values[value.name] if isinstance(value, Parameter) else value

    if isinstance(predicate, And | Or):
        return type(predicate)(tuple(filled_in(part, values) for part in predicate.parts))
    if isinstance(predicate, Not):
        return Not(filled_in(predicate.part, values))
    if isinstance(predicate, In):
        return replace(predicate, values=tuple(map(known, predicate.values)))
    if isinstance(predicate, Null):
        return predicate
    return replace(predicate, value=known(predicate.value))


def _written(value: Value) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _inside(part: Predicate) -> str:
    return f"({part})" if isinstance(part, And | Or) else str(part)


# -- from text ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


class _Reader:
    """Reads one predicate, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0

    def read(self) -> Predicate:
        found = self._any()
        if self._at < len(self._tokens):
            self._fail("the end")
        return found

    def _any(self) -> Predicate:
        parts = [self._all()]
        while self._took("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _all(self) -> Predicate:
        parts = [self._one()]
        while self._took("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _one(self) -> Predicate:
        if self._took("not"):
            return Not(self._one())
        if self._took("("):
            inner = self._any()
            self._need(")")
            return inner
        return self._test()

    def _test(self) -> Predicate:
        left = self._operand()
        found: Predicate
        negated = self._took("not")
        if self._took("in"):
            found = self._in(left)
        elif self._took("between"):
            column, low = self._column(left), self._value()
            self._need("and")
            found = And((Test(column, ">=", low), Test(column, "<=", self._value())))
        elif negated:
            self._fail("'in' or 'between'")
        elif self._took("is"):
            negated = self._took("not")
            self._need("null")
            found = Null(self._column(left))
        else:
            return self._compared(left)
        return Not(found) if negated else found

    def _compared(self, left: Column | Value) -> Predicate:
        tests: list[Predicate] = []
        while (sign := self._next()) and sign.kind == "sign" and sign.text in _OPERATORS:
            self._at += 1
            operator, right = _OPERATORS[sign.text], self._operand()
            if isinstance(left, Column) == isinstance(right, Column):
                both = "two columns" if isinstance(left, Column) else "two values"
                raise InputError(
                    f"the filter {self._text!r} compares {both}; expected a column and a value",
                    hint='texts stand in quotes: lang == "th"',
                )
            if isinstance(left, Column):
                assert not isinstance(right, Column)
                tests.append(Test(left, operator, right))
            else:
                assert isinstance(right, Column)
                tests.append(Test(right, _TURNED[operator], left))
            left = right
        if not tests:
            return Test(self._column(left), "==", True)
        return tests[0] if len(tests) == 1 else And(tuple(tests))

    def _in(self, left: Column | Value) -> Predicate:
        if not isinstance(left, Column):
            return Has(self._column(self._operand()), left)
        close = "]" if self._took("[") else ")"
        if close == ")":
            self._need("(")
        values: list[Value] = []
        while not self._took(close):
            if values:
                self._need(",")
            values.append(self._value())
        return In(left, tuple(values))

    def _operand(self) -> Column | Value:
        token = self._next()
        if token is None or token.kind == "sign":
            self._fail("a column or a value")
        self._at += 1
        word = token.text.lower()
        if token.kind == "column" or (token.kind == "word" and word not in _WORDS):
            return Column(token.text)
        if token.kind == "parameter":
            return Parameter(token.text)
        if token.kind == "text":
            return _unquoted(token.text)
        if token.kind == "number":
            whole = re.fullmatch("[+-]?[0-9]+", token.text)
            number = int(token.text) if whole else float(token.text)
            if not math.isfinite(number):
                raise InputError(f"the filter {self._text!r}: {token.text} is too large a number")
            return number
        if word in ("true", "false"):
            return word == "true"
        self._at -= 1
        if word == "null":
            raise InputError(
                f"the filter {self._text!r} compares with null, which is never true",
                hint="write: column is null, or: column is not null",
            )
        return self._fail("a column or a value")

    def _value(self) -> Value:
        found = self._operand()
        if isinstance(found, Column):
            self._at -= 1
            self._fail("a value")
        return found

    def _column(self, found: Column | Value) -> Column:
        if not isinstance(found, Column):
            raise InputError(
                f"the filter {self._text!r} has the value {_written(found)} where a column was "
                "expected",
                hint=_EXAMPLE,
            )
        return found

    def _next(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _took(self, text: str) -> bool:
        token = self._next()
        if token is None or token.kind not in ("word", "sign") or token.text.lower() != text:
            return False
        self._at += 1
        return True

    def _need(self, text: str) -> None:
        if not self._took(text):
            self._fail(f"{text!r}")

    def _fail(self, expected: str) -> NoReturn:
        token = self._next()
        if token is None:
            raise InputError(
                f"the filter {self._text!r} ends where {expected} was expected", hint=_EXAMPLE
            )
        raise InputError(
            f"the filter {self._text!r} has {token.text!r} at character {token.at + 1}; expected "
            f"{expected}",
            hint=_EXAMPLE,
        )


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise InputError(
                f"the filter {text!r} cannot be read from character {at + 1} on: {text[at:]!r}",
                hint=_EXAMPLE,
            )
        kind = match.lastgroup
        yield _Token(kind, match[kind], match.start(kind))
        at = match.end()


def _unquoted(text: str) -> str:
    quote = text[0]
    return re.sub(rf"\\(.)|{quote}{quote}", lambda m: m[1] or quote, text[1:-1], flags=re.DOTALL)


# -- from a mapping -------------------------------------------------------------------------------


def _of_mapping(given: Mapping[str, Any], whole: Any) -> Predicate:
    parts: list[Predicate] = []
    for name, value in given.items():
        if name in ("$and", "$or"):
            if not isinstance(value, Sequence) or isinstance(value, str) or not value:
                raise InputError(f"the filter {whole!r}: {name} takes a list of filters")
            inner = tuple(parse_predicate(part) for part in value)
            kind = And if name == "$and" else Or
            parts.append(inner[0] if len(inner) == 1 else kind(inner))
        elif name == "$not":
            parts.append(Not(parse_predicate(value)))
        elif name.startswith("$"):
            raise InputError(f"the filter {whole!r}: unknown operator {name}")
        else:
            parts.append(_of_column(Column(name), value, whole))
    if not parts:
        raise InputError("a filter is empty", hint="null filters nothing")
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _of_column(column: Column, given: Any, whole: Any) -> Predicate:
    if not isinstance(given, Mapping):
        given = {"$in" if isinstance(given, list | tuple) else "$eq": given}
    parts: list[Predicate] = []
    for name, value in given.items():
        if name in ("$in", "$nin") and isinstance(value, list | tuple):
            found: Predicate = In(column, tuple(_plain(v, whole) for v in value))
            parts.append(Not(found) if name == "$nin" else found)
        elif name == "$not" and isinstance(value, Mapping):
            parts.append(Not(_of_column(column, value, whole)))
        elif value is None and name in ("$eq", "$ne"):
            parts.append(Null(column) if name == "$eq" else Not(Null(column)))
        elif name in _MONGO:
            parts.append(Test(column, _MONGO[name], _plain(value, whole)))
        else:
            known = ", ".join([*_MONGO, "$in", "$nin", "$not"])
            raise InputError(
                f"the filter {whole!r}: cannot read {{{name!r}: {value!r}}}",
                hint=f"operators are {known}",
            )
    if not parts:
        raise InputError(f"the filter {whole!r} says nothing of {column}")
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _plain(value: Any, whole: Any) -> Value:
    if isinstance(value, str | int | bool) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise InputError(f"the filter {whole!r}: {value!r} is no text, number or boolean")
