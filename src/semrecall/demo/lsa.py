"""A small embedding model without downloads: TF-IDF, latent semantic analysis (LSA), hashing."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse
import scipy.sparse.linalg
import threadpoolctl

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

_MIN_DOCUMENTS = 2
# The name and the first sentence say what an entry is about; the rest is detail.
_NAME_WEIGHT = 3
_LEAD_WEIGHT = 3
# The share of the dimensions given to the axes of the SVD, and how much more one of them counts.
_AXES_SHARE = 0.25
_AXES_WEIGHT = 1.5
# A rare word is split in two where both halves are words of this many texts.
_RARE = 60
_FREQUENT = 8

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_LEAD = re.compile(r".*?\n(?:.*?[.:](?=\s|$)|.*?\n\n)", re.DOTALL)
_CHUNK = re.compile(r"[A-Za-z0-9]+")
_TOO_COMMON = """
a about all also am an and any are as at be been being between both but by can could did do does
done e each either etc every for from g get gets given had has have he her here his how i if in
instead into is it its itself like may me might more most must my no nor not of off on one only
onto or other our out over own per please python same self shall she should so some such than
that the their them then there these they this those through to too under up upon us use used
uses using very via want was way we were what when where whether which while who whose why will
with within without would you your
"""
_STOP_WORDS = frozenset(_TOO_COMMON.split())
# "getsize" and "isfile" are about sizes and files.
_PREFIX = re.compile(r"get|is|has|set")
# Names abbreviate what people write in full.
_SPELLED_OUT = {
    "arg": "argument", "args": "arguments", "attr": "attribute", "calc": "calculate",
    "char": "character", "chars": "characters", "cmd": "command", "conn": "connection",
    "ctx": "context", "dict": "dictionary", "dir": "directory", "dirs": "directories",
    "doc": "documentation", "eig": "eigenvalue", "elem": "element", "enc": "encoding",
    "env": "environment", "expr": "expression", "ext": "extension", "folder": "directory",
    "folders": "directories", "func": "function", "hex": "hexadecimal", "idx": "index",
    "info": "information", "int": "integer", "inv": "inverse", "iter": "iterate",
    "kwargs": "keywords", "len": "length", "lib": "library", "max": "maximum", "min": "minimum",
    "mod": "module", "msg": "message", "num": "number", "obj": "object", "param": "parameter",
    "params": "parameters", "pwd": "password", "rand": "random", "ref": "reference",
    "regex": "regular", "regexp": "regular", "repr": "representation", "seq": "sequence",
    "std": "standard", "str": "string", "temp": "temporary", "tmp": "temporary", "val": "value",
    "var": "variable", "vars": "variables",
}  # fmt: skip
# Prefixes and endings that are words of their own, but not halves of a compound.
_NOT_A_HALF = {"abl", "com", "con", "dis", "int", "non", "pre", "pur", "sub", "sur", "tar"}


def embed(
    corpus_texts: Sequence[str],
    query_texts: Sequence[str],
    dimensions: int = 384,
    seed: int = 0,
) -> tuple[Float32, Float32]:
    """Embed a corpus and queries: two float32 arrays (n, dimensions), (m, dimensions), unit rows.

    A corpus text starts with a dotted name. The first quarter of the dimensions are the leading
    axes of the singular value decomposition of the TF-IDF matrix, which know that words are
    related; the others are a random projection of what those axes leave out, which keeps rare
    words apart; the last one holds what a short text lacks of a usual length. The model is fitted
    to the corpus alone. A query with no word that the model knows has a zero row. The same input
    gives the same output up to the rounding of the linear algebra library.
    """
    documents = [_document_terms(text) for text in corpus_texts]
    queries = [Counter(_tokens(text)) for text in query_texts]
    compounds = _compounds(_document_frequency(documents))
    for counts in (*documents, *queries):
        _add_parts(counts, compounds)
    frequency = _document_frequency(documents)
    known = sorted(term for term, count in frequency.items() if count >= _MIN_DOCUMENTS)
    axes_count = int(dimensions * _AXES_SHARE)
    smallest = min(len(documents), len(known))
    if not 1 <= axes_count < smallest:
        raise ValueError(
            f"found dimensions={dimensions}, which asks for {axes_count} axes; expected 1 to "
            f"{smallest - 1}: fewer than the texts ({len(documents)}) and than the words that "
            f"occur in two of them ({len(known)})"
        )
    column = {term: position for position, term in enumerate(known)}
    idf = np.log((1 + len(documents)) / (1 + np.array([frequency[term] for term in known]))) + 1
    corpus = _tf_idf(documents, column, idf)
    axes = _axes(corpus, axes_count, seed)
    rest = _signs(known, dimensions - axes_count - 1, seed)
    rest -= axes @ (axes.T @ rest)
    projection = np.hstack([_AXES_WEIGHT * axes, rest])
    query_rows = _unit_rows(_tf_idf(queries, column, idf) @ projection)
    return _padded_rows(corpus @ projection), np.pad(query_rows, ((0, 0), (0, 1)))


def _document_terms(text: str) -> Counter[str]:
    """Count the terms of an entry; those of its name and its first sentence count more."""
    counts = Counter(_tokens(text))
    lead = _LEAD.match(text)
    for term in _tokens(lead.group() if lead else text):
        counts[term] += _LEAD_WEIGHT - 1
    name = text.split("\n", 1)[0].partition("(")[0]
    for term in _tokens(name.rpartition(".")[2]):
        counts[term] += _NAME_WEIGHT
    return counts


def _document_frequency(texts: Iterable[Counter[str]]) -> Counter[str]:
    return Counter(term for counts in texts for term in counts)


def _compounds(frequency: Counter[str]) -> dict[str, tuple[str, ...]]:
    """Rare words that are frequent ones written together: "readlines" is "read" and "lines"."""
    halves = {
        term for term, count in frequency.items() if count >= _FREQUENT and term not in _NOT_A_HALF
    }
    compounds: dict[str, tuple[str, ...]] = {}
    for word in sorted(term for term, count in frequency.items() if count < _RARE):
        prefix = _PREFIX.match(word)
        if prefix and word[prefix.end() :] in halves:
            compounds[word] = (word[prefix.end() :],)
            continue
        cuts = [
            (_stem(word[:cut]), _stem(word[cut:]))
            for cut in range(3, len(word) - 2)
            if halves.issuperset({_stem(word[:cut]), _stem(word[cut:])})
        ]
        if cuts:
            # Of several ways to cut, the one whose rarer half is the more common word.
            compounds[word] = max(cuts, key=lambda pair: min(frequency[half] for half in pair))
    return compounds


def _add_parts(counts: Counter[str], compounds: dict[str, tuple[str, ...]]) -> None:
    for term, count in sorted(counts.items()):
        for half in compounds.get(term, ()):
            counts[half] += count


def _tokens(text: str) -> Iterator[str]:
    """Words in lower case without endings: "readLines", "read_lines" and "reading lines" agree."""
    for chunk in _CHUNK.findall(text):
        parts = _WORD.findall(chunk)
        yield from _stems(parts)
        if len(parts) > 1 and len(chunk) > 2:
            # "base64" and "HTTPServer" are also words of their own.
            yield chunk.lower()


def _stems(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        lower = word.lower()
        if len(lower) > 1 and not lower.isdigit() and lower not in _STOP_WORDS:
            yield _stem(_SPELLED_OUT.get(lower, lower))


def _stem(word: str) -> str:
    """Take off common English endings: "sorting", "sorted" and "sorts" are all "sort"."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    for ending, shortest in (("ing", 6), ("ed", 5), ("es", 5), ("s", 4), ("er", 6), ("or", 6)):
        if len(word) >= shortest and word.endswith(ending) and not word.endswith("ss"):
            word = word[: -len(ending)]
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        return word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def _tf_idf(
    texts: Sequence[Counter[str]], column: dict[str, int], idf: Float64
) -> scipy.sparse.csr_matrix:
    """Rows of (1 + log(count)) * idf."""
    values: list[float] = []
    columns: list[int] = []
    starts = [0]
    for counts in texts:
        for term, count in sorted(counts.items()):
            if term in column:
                columns.append(column[term])
                values.append(1 + np.log(count))
        starts.append(len(columns))
    weights = np.array(values, dtype=np.float64) * idf[np.array(columns, dtype=np.int64)]
    return scipy.sparse.csr_matrix((weights, columns, starts), shape=(len(texts), len(column)))


def _axes(matrix: scipy.sparse.csr_matrix, count: int, seed: int) -> Float64:
    """The leading right singular vectors, strongest first, with a fixed start and fixed signs."""
    start = np.random.default_rng(seed).standard_normal(min(matrix.shape))
    # The steps are small: on a busy machine threads would wait for each other, not help.
    with threadpoolctl.threadpool_limits(limits=1):
        _, strengths, rows = scipy.sparse.linalg.svds(matrix, k=count, v0=start, solver="arpack")
    axes = np.asarray(rows, dtype=np.float64)[np.argsort(-strengths)].T
    largest = axes[np.argmax(np.abs(axes), axis=0), np.arange(count)]
    return np.asarray(axes * np.sign(largest), dtype=np.float64)


def _signs(terms: Sequence[str], count: int, seed: int) -> Float64:
    """Random signs, scaled to keep lengths: a term has the same ones whatever else is known."""
    size = -(-count // 8)
    digests = [hashlib.shake_128(f"{seed} {term}".encode()).digest(size) for term in terms]
    data = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(len(terms), size)
    signs = np.unpackbits(data, axis=1)[:, :count] * 2.0 - 1.0
    return np.asarray(signs / np.sqrt(count), dtype=np.float64)


def _padded_rows(matrix: Float64) -> Float32:
    """Unit rows with one more coordinate, which is zero for texts of the median length or longer.

    Without it an entry of two words is as near to each of them as a text can be, and wins over
    entries that hold all words of a question.
    """
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    rows = matrix / np.maximum(lengths, np.median(lengths))
    missing = np.sqrt(np.maximum(0.0, 1.0 - np.sum(rows * rows, axis=1, keepdims=True)))
    return np.asarray(np.hstack([rows, missing]), dtype=np.float32)


def _unit_rows(matrix: Float64) -> Float32:
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    units = np.divide(matrix, norms, out=np.zeros_like(matrix), where=norms > 0)
    return np.asarray(units, dtype=np.float32)
