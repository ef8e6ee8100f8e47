"""What is shown of a document: text with nothing hidden in it, its language, its image."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FOLD", "Picture", "folded", "language", "picture", "rubric", "visible"]

#: Of a longer text so much is shown at first.
FOLD = 6000
_MAX_IMAGE_BYTES = 20 * 2**20

#: Control characters, what turns the direction of text (also unseen), half characters, and tags
#: that no reader sees. Marks that scripts need (joiners, spaces of no width) are left alone.
_HIDDEN = re.compile(
    "([\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb"
    "\U000e0000-\U000e007f])\\1*"
)
#: Scripts that tell the language, which decides how lines break, and how it is read aloud.
_SCRIPTS = {
    "th": "\u0e00-\u0e7f", "lo": "\u0e80-\u0eff", "km": "\u1780-\u17ff", "my": "\u1000-\u109f",
    "ja": "\u3040-\u30ff", "ko": "\uac00-\ud7af", "zh": "\u4e00-\u9fff", "he": "\u0590-\u05ff",
    "el": "\u0370-\u03ff", "ka": "\u10a0-\u10ff", "hy": "\u0530-\u058f", "ta": "\u0b80-\u0bff",
}  # fmt: skip
_SIGNATURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
)


@dataclass(frozen=True)
class Picture:
    """An image: bytes of a known kind, the address of one elsewhere, or why there is none."""

    data: bytes = b""
    media_type: str = ""
    address: str = ""
    fault: str = ""


def visible(text: str) -> str:
    """The text with characters that hide or turn things written out, as in ⟦U+202E⟧."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _HIDDEN.sub(_written_out, text)


def folded(text: str) -> tuple[str, str]:
    """The first part of a text, and the rest of a long one; cut between words."""
    if len(text) <= FOLD * 1.25:
        return text, ""
    cut = max(text.rfind(space, FOLD // 2, FOLD) for space in " \n")
    cut = FOLD if cut < 0 else cut
    return text[:cut], text[cut:]


def rubric(text: str) -> list[tuple[str, list[str]]]:
    """A rubric as blocks: ("p", its one text) or ("ul" or "ol", its items), lines joined."""
    blocks: list[tuple[str, list[str]]] = []
    fresh = True
    for line in text.splitlines():
        mark = re.match(r"\s*(-|[0-9]+\.)\s+", line)
        words = line[mark.end() :] if mark else line.strip()
        kind = "p" if mark is None else "ul" if mark[1] == "-" else "ol"
        if not words:
            fresh = True
        elif mark and (not blocks or blocks[-1][0] != kind):
            blocks.append((kind, [words]))
        elif mark:
            blocks[-1][1].append(words)
        elif fresh:
            blocks.append((kind, [words]))
        else:
            blocks[-1][1][-1] += f" {words}"
        fresh = fresh and not words
    return blocks


def language(text: str) -> str:
    """The language of a text whose script tells it, else ""."""
    letters = [c for c in text[:2000] if c.isalpha()]
    for name, letter_range in _SCRIPTS.items():
        # A few signs of Japanese among Chinese ones make the text Japanese.
        enough = 0.1 if name == "ja" else 0.4
        found = len(re.findall(f"[{letter_range}]", "".join(letters)))
        if letters and found / len(letters) > enough:
            return name
    return ""


def picture(image: str) -> Picture:
    """The image of a document; what it is comes from its bytes, and SVG, which can act, is none."""
    if image.startswith("data:"):
        head, _, body = image.partition(",")
        try:
            data = base64.b64decode(body, validate=True) if head.endswith(";base64") else b""
        except binascii.Error:
            data = b""
        return _of_bytes(data, "its data: address")
    scheme, divider, _ = image.partition("://")
    if divider and scheme.lower() in ("http", "https"):
        return Picture(address=image)
    try:
        with open(image, "rb") as file:
            return _of_bytes(file.read(_MAX_IMAGE_BYTES + 1), Path(image).name)
    except (OSError, ValueError):
        return Picture(fault=f"The image {visible(Path(image).name)} cannot be read.")


def _of_bytes(data: bytes, name: str) -> Picture:
    if len(data) > _MAX_IMAGE_BYTES:
        return Picture(fault=f"The image {visible(name)} is larger than 20 MiB.")
    for signature, media_type in _SIGNATURES:
        if signature.match(data):
            return Picture(data, media_type)
    return Picture(fault=f"{visible(name)} is no PNG, JPEG, GIF or WebP image, so it is not shown.")


def _written_out(found: re.Match[str]) -> str:
    code, count = ord(found[1]), len(found[0])
    return f"⟦U+{code:04X}⟧" if count == 1 else f"⟦U+{code:04X} ×{count:,}⟧"
