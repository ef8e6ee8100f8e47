"""Exact truth: screen with fast arithmetic and a proven error bound, settle in float64."""

from semrecall.exact.rescore import rescore
from semrecall.exact.search import query_reasons, search

__all__ = ["query_reasons", "rescore", "search"]
