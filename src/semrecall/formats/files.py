"""Files: written whole or not at all, read through gzip and zstd, named in every error."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import IO, Any, TypeVar

from semrecall.errors import FormatError, InputError

__all__ = [
    "COMPRESSIONS",
    "Faults",
    "bare_name",
    "fault",
    "files_at",
    "first_line",
    "looks_like",
    "named",
    "open_text",
    "read_text",
    "recognised",
    "text_blocks",
    "write_text",
    "write_whole",
    "writing",
]

#: Suffix -> codec of compressed text.
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
#: At most so many faults of one file are shown.
SHOWN_FAULTS = 5
_STDOUT = {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}
_MAGIC = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"%PDF", "a PDF document"),
    (b"PAR1", "a parquet file"),
    (b"ARROW1", "an arrow file"),
    (b"\x93NUMPY", "a .npy file"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"PK\x03\x04", "a zip archive (.npz is one too)"),
    (b"\x1f\x8b", "gzip-compressed"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed"),
    (b"BZh", "bzip2-compressed"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\x80\x04\x95", "a pickle"),
    (b"\x80\x05\x95", "a pickle"),
    (b"<!DOCTYPE", "a web page"),
    (b"<html", "a web page"),
    (b"version https://git-lfs", "a pointer of Git LFS (run git lfs pull)"),
)
Text = TypeVar("Text", bytes, bytearray)
_CODECS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}

# To learn the umask one must set it, which other threads would see: once, at import.
_UMASK = os.umask(0o022)
os.umask(_UMASK)


# -- errors ---------------------------------------------------------------------------------


def fault(path: Path | str, message: str, hint: str | None = None) -> FormatError:
    """A FormatError that names the file."""
    return FormatError(f"{path}: {message}", hint=hint)


class Faults:
    """The faults of one file, reported together: the first few, and how many there are."""

    def __init__(self, path: Path | str) -> None:
        self._path = path
        self.shown: list[str] = []
        self.count = 0

    def add(self, message: str) -> None:
        """One more fault."""
        if self.count < SHOWN_FAULTS:
            self.shown.append(message)
        self.count += 1

    def add_all(self, entries: Sequence[Any], describe: Callable[[Any], str]) -> None:
        """A fault per entry; only those that are shown are described."""
        room = max(0, SHOWN_FAULTS - self.count)
        self.shown += [describe(entry) for entry in entries[:room]]
        self.count += len(entries)

    def settle(self, hint: str | None = None) -> None:
        """Raise a FormatError when there were any."""
        if self.count == 1:
            raise fault(self._path, self.shown[0], hint)
        if self.count:
            first = f"; the first {SHOWN_FAULTS}" if self.count > SHOWN_FAULTS else ""
            lines = "".join(f"\n  {message}" for message in self.shown)
            raise fault(self._path, f"{self.count:,} faults{first}:{lines}", hint)


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Put the file's name before what the nouns say of its content."""
    try:
        yield
    except FormatError:
        raise
    except InputError as error:
        raise FormatError(f"{path}: {error.message}", hint=error.hint) from error


# -- looking --------------------------------------------------------------------------------


def bare_name(path: Path) -> str:
    """The file's name in lower case, without the suffix of a compression."""
    name = path.name.lower()
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return name


def looks_like(path: Path) -> str | None:
    """What the first bytes of a file say it is ("a PNG image"); None when they say nothing."""
    return recognised(_head(path))


def recognised(head: bytes | bytearray) -> str | None:
    """What the first bytes say a file is; None when they say nothing."""
    if not head:
        return "an empty file"
    return next((what for magic, what in _MAGIC if head.startswith(magic)), None)


def _head(path: Path, size: int = 32) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):
        raise InputError(
            f"{path} is not a regular file, so its format cannot be looked up in it",
            hint="state the format (--from on the command line, format= in Python)",
        )
    with path.open("rb") as file:
        return file.read(size)


# -- text -----------------------------------------------------------------------------------


def read_text(path: Path) -> bytes:
    """The whole text of a file as UTF-8 bytes, decompressed, without byte order mark."""
    with _decompressed(path) as source:
        data: bytes = source.read()
        return _checked_start(path, data)


def _checked_start(path: Path, data: Text) -> Text:
    """The first bytes of a text without byte order mark; FormatError where it is no text."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise fault(path, "the text is UTF-16; expected UTF-8", "save it again as UTF-8")
    if b"\0" in data[:4096]:
        raise fault(path, f"is {recognised(data[:32]) or 'a binary file'}; expected text")
    return data.removeprefix(b"\xef\xbb\xbf")


def text_blocks(
    path: Path, size: int = 1 << 21, spare: list[bytearray] | None = None
) -> Iterator[bytearray]:
    """The text of a file as UTF-8 bytes like `read_text`, in blocks of whole lines.

    spare: blocks that the caller is done with; they are taken from here and filled again, because
        new memory costs more than reading does.
    """
    with _decompressed(path) as source:
        first = True
        while block := _next_block(source, size, spare):
            text = _checked_start(path, block) if first else block
            first = False
            if text:  # more than a byte order mark
                yield text


def _next_block(source: Any, size: int, spare: list[bytearray] | None) -> bytearray:
    block = _unused(spare)
    if block is None:
        block = bytearray(source.read(size))
        full = len(block) == size
    else:
        count = source.readinto(block)
        full = count == len(block)
        del block[count:]
    if full:
        block += source.readline()
    return block


def _unused(spare: list[bytearray] | None) -> bytearray | None:
    """One of the spare blocks that nothing looks into any more; None where there is none."""
    while spare:
        block = spare.pop()
        with contextlib.suppress(BufferError):
            # Refused while it is looked into; arrow's reader may let go of it late.
            block.append(0)
            del block[-1]
            return block
    return None


def first_line(path: Path, comment: str | None = None) -> str:
    """The first line that is not blank, nor starts with `comment`, of the first 64 KiB; or ""."""
    _head(path)
    with _decompressed(path) as source:
        text: bytes = source.read(1 << 16)
    lines = text.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").splitlines()
    wanted = (n for n in lines if n.strip() and not (comment and n.startswith(comment)))
    return next(wanted, "")


@contextlib.contextmanager
def _decompressed(path: Path) -> Iterator[Any]:
    """A file's bytes, decompressed where its first bytes say that it is compressed."""
    with path.open("rb") as file:
        head = file.peek(4)[:4]
        codec = next((c for magic, c in _CODECS.items() if head.startswith(magic)), None)
        if codec is None:
            yield file
            return
        import pyarrow as pa

        try:
            with pa.CompressedInputStream(pa.PythonFile(file, "r"), codec) as stream:
                yield io.BufferedReader(stream)
        except OSError as error:
            if error.errno is not None:
                raise
            raise fault(path, f"the {codec} data is damaged or cut off ({error})") from error


@contextlib.contextmanager
def open_text(path: Path) -> Iterator[IO[bytes]]:
    """A new text file to write bytes to, compressed as its suffix says."""
    import pyarrow as pa

    codec = COMPRESSIONS.get(path.suffix.lower())
    with path.open("wb") as file:
        if codec is None:
            yield file
            return
        with pa.CompressedOutputStream(pa.PythonFile(file, "w"), codec) as stream:
            yield stream


def write_text(path: Path, lines: Iterator[str]) -> None:
    """Write lines (each with its line end) as UTF-8, compressed as the suffix says.

    Raises InputError for a NUL: no reader would take the file for text.
    """
    with open_text(path) as file:
        pending: list[str] = []
        for line in lines:
            pending.append(line)
            if len(pending) == 8192:
                file.write(_joined(pending))
                pending.clear()
        file.write(_joined(pending))


def _joined(lines: list[str]) -> bytes:
    text = "".join(lines)
    if "\0" in text:
        line = next(line for line in lines if "\0" in line)
        raise InputError(
            f"{line.rstrip()[:80]!r} holds a NUL character, which a text file cannot",
            hint="write parquet or jsonl instead",
        )
    return text.encode("utf-8", "replace")


# -- writing --------------------------------------------------------------------------------


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[Path]:
    """A temporary path to write to; it takes the place of `path` when all went well.

    The new file is complete or not there: on any exception, Ctrl-C included, the temporary file
    goes away and an old file stays as it was. Permissions of an old file are kept. Standard
    output ("-"), devices and pipes get the finished bytes.

    Raises InputError when the directory does not exist, OSError naming `path` on a full disk.
    """
    target = Path(path)
    if str(path) in _STDOUT or _is_special(target):
        with _spooled(target) as temporary:
            yield temporary
        return
    target = Path(os.path.realpath(target))
    if target.is_dir():
        raise InputError(f"{path} is a directory; expected the name of a file to write")
    if not target.parent.is_dir():
        raise InputError(f"{path}: the directory {target.parent} does not exist")
    with _named_errors(path), _scratch(target.parent, target.name) as temporary:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)


def files_at(path: Path | str) -> list[Path]:
    """The files that a path is, holds as a folder, or finds as a pattern, in order."""
    found, text = Path(path), str(path)
    if found.is_file():
        return [found]
    names: Iterable[Path] = found.rglob("*") if found.is_dir() else []
    if not found.is_dir() and "://" not in text and any(mark in text for mark in "*?["):
        names = map(Path, glob(text, recursive=True))
    return sorted(name for name in names if name.is_file())


def write_whole(path: Path | str, text: str) -> None:
    """Write a text as UTF-8, like `writing`; what UTF-8 cannot hold becomes a question mark.

    File names that are no Unicode, which a text may name, are such.
    """
    with writing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")


@contextlib.contextmanager
def _scratch(directory: Path, name: str) -> Iterator[Path]:
    """A new empty file beside the target, with the same suffixes; removed in the end if there."""
    import tempfile

    handle, made = tempfile.mkstemp(dir=directory, prefix=".", suffix=f".partial-{name[-100:]}")
    os.close(handle)
    temporary = Path(made)
    try:
        temporary.chmod(0o666 & ~_UMASK)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _spooled(target: Path) -> Iterator[Path]:
    """For targets that cannot be renamed to: write elsewhere, then copy the finished bytes."""
    import tempfile

    with (
        tempfile.TemporaryDirectory(prefix="semrecall-") as directory,
        _scratch(Path(directory), target.name) as temporary,
    ):
        yield temporary
        with temporary.open("rb") as source, _named_errors(target):
            if str(target) in _STDOUT:
                shutil.copyfileobj(source, sys.stdout.buffer)
                sys.stdout.buffer.flush()
            else:
                with target.open("wb") as sink:
                    shutil.copyfileobj(source, sink)


@contextlib.contextmanager
def _named_errors(path: Path | str) -> Iterator[None]:
    """Give errors of the system the name of the file the user asked for."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        ours = error.filename is None or ".partial-" in str(error.filename)
        if error.errno is None or not ours:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()
