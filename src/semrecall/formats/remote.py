"""Files by URL (s3://, gs://, az://, https://, memory://, ...) and local ones, read in ranges.

What a URL means, and with which credentials it is read, is known to fsspec; keys stay in the
environment. Names in messages are without the part that may hold a signature.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from semrecall.errors import FormatError, InputError, MissingExtra
from semrecall.formats.files import fault
from semrecall.registry import import_extra

__all__ = ["LocalFile", "RemoteFile", "Source", "is_url", "listed", "shown", "source"]

_ATTEMPTS = 4
_PAUSE_SECONDS = 0.5  # before the second attempt; twice as long before each further one


def is_url(text: str) -> bool:
    """Whether a text is a URL rather than the path of a file."""
    return "://" in text


def shown(location: str) -> str:
    """A location as messages name it: a URL without user, password and query."""
    if not is_url(location):
        return location
    scheme, _, rest = location.partition("://")
    rest = rest.split("#")[0].split("?")[0] if scheme in ("http", "https") else rest
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def source(location: str) -> Source:
    """The file at a path or a URL; file:// is a path."""
    if not is_url(location):
        return LocalFile(location)
    if location.startswith("file://"):
        return LocalFile(url2pathname(urlsplit(location).path))
    return RemoteFile(location)


def listed(url: str) -> list[str] | None:
    """URLs that match a pattern (*), or stand in a directory; None where it is one file."""
    scheme = url.partition("://")[0]
    remote = RemoteFile(url)
    if "*" in shown(url):
        names = remote.asked(lambda fs, path: fs.glob(path))
    elif scheme not in ("http", "https") and remote.asked(lambda fs, path: fs.isdir(path)):
        names = remote.asked(lambda fs, path: fs.ls(path, detail=False))
    else:
        return None
    return [name if is_url(name) else f"{scheme}://{name.lstrip('/')}" for name in names]


@dataclass(frozen=True)
class LocalFile:
    """A file of this machine."""

    location: str

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.location

    @property
    def local(self) -> Path:
        """Its path."""
        return Path(self.location)

    @cached_property
    def size(self) -> int:
        """Bytes."""
        return self.local.stat().st_size

    @property
    def version(self) -> str:
        """What differs where the file was written again."""
        return f"{self.size} {self.local.stat().st_mtime_ns}"

    def read(self, start: int, stop: int) -> bytes:
        """Bytes from start to stop; FormatError where the file ends before."""
        with open(self.location, "rb", buffering=0) as file:
            file.seek(start)
            data: bytes = file.read(stop - start)
            while 0 < len(data) < stop - start and (more := file.read(stop - start - len(data))):
                data += more
        return _complete(self.name, data, start, stop)

    def open(self) -> IO[bytes]:
        """A file to read in."""
        return self.local.open("rb")


@dataclass(frozen=True)
class RemoteFile:
    """A file at a URL. Whatever is asked of it is asked again where the connection fails."""

    location: str

    @property
    def name(self) -> str:
        """What messages call it."""
        return shown(self.location)

    @property
    def local(self) -> None:
        """It has no path."""
        return

    @cached_property
    def size(self) -> int:
        """Bytes."""
        size = self._facts.get("size")
        if size is None:
            raise fault(self.name, "the server does not say how long the file is")
        return int(size)

    @property
    def version(self) -> str:
        """What differs where the file was written again, as far as the server says it."""
        known = (self._facts.get(key) for key in ("ETag", "etag", "LastModified", "mtime"))
        return f"{self.size} {next((str(value) for value in known if value is not None), '')}"

    @cached_property
    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = self.asked(lambda fs, path: fs.info(path))
        return facts

    def read(self, start: int, stop: int) -> bytes:
        """Bytes from start to stop; FormatError where the file ends before."""
        if stop <= start:
            return b""
        data: bytes = self.asked(lambda fs, path: fs.cat_file(path, start=start, end=stop))
        if len(data) > stop - start:
            raise fault(
                self.name,
                f"the server gave {len(data):,} bytes where {stop - start:,} were asked for: it "
                "does not serve parts of files",
                "copy the file here, or to a store that does",
            )
        return _complete(self.name, data, start, stop)

    def open(self) -> IO[bytes]:
        """A file to read in; each read is one request for just its bytes."""
        file: IO[bytes] = self.asked(
            lambda fs, path: fs.open(path, "rb", cache_type="none", block_size=1 << 20)
        )
        return file

    def asked(self, question: Any) -> Any:
        """question(file system, path), tried again where the connection failed.

        Raises FileNotFoundError, PermissionError, MissingExtra, or InputError for all else.
        """
        fs, path = self._opened()
        for attempt in range(_ATTEMPTS):
            try:
                return question(fs, path)
            except (FileNotFoundError, PermissionError) as error:
                raise type(error)(error.errno or 2, self._safe(error), self.name) from None
            except FormatError:
                raise
            except Exception as error:  # every file system raises errors of its own
                if attempt == _ATTEMPTS - 1:
                    raise InputError(f"{self.name}: cannot be read ({self._safe(error)})") from None
            time.sleep(_PAUSE_SECONDS * 2**attempt)
        raise AssertionError

    def _opened(self) -> tuple[Any, str]:
        core = import_extra("fsspec.core", "remote", f"reading {self.name}")
        scheme = self.location.partition("://")[0]
        try:
            fs, path = core.url_to_fs(self.location)
        except ImportError as error:
            if scheme in ("http", "https"):
                raise MissingExtra("aiohttp", "remote", f"reading {self.name}") from error
            raise InputError(
                f"{self.name}: reading {scheme}:// needs one more package",
                hint=str(error).strip().removesuffix("."),
            ) from error
        except ValueError as error:
            raise InputError(f"{self.name}: {error}", hint="is the scheme right?") from error
        return fs, path

    def _safe(self, error: BaseException) -> str:
        """What an error says, without the parts of the URL that are nobody's business."""
        text = " ".join(str(error).split()) or type(error).__name__
        return text.replace(self.location, self.name).replace(
            urlsplit(self.location).query or "\0", "..."
        )


Source = LocalFile | RemoteFile


def _complete(name: str, data: bytes, start: int, stop: int) -> bytes:
    if len(data) < stop - start:
        raise fault(
            name,
            f"the file ends at byte {start + len(data):,}; expected at least {stop:,}",
            "is it cut off, or being written?",
        )
    return data
