"""The labelling page: one local page on which people say which documents are relevant."""

from semrecall.label.session import Session

__all__ = ["Session"]
