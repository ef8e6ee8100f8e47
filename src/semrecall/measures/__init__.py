"""Measures: plain functions from a problem to one value per query, and the names they go by."""

from semrecall.measures import (
    context_answer,
    counts,
    external,
    graded,
    index,
    peers,
    relevance,
    spans,
)
from semrecall.measures.bounds import relevance_bounds
from semrecall.measures.coverage import recall_bounds, srecall_bounds
from semrecall.measures.grammar import Definition, Measure, measure, measures, parse, parse_all
from semrecall.measures.matching import query_tolerance
from semrecall.measures.problem import NoRelevant, Problem, align
from semrecall.measures.ties import TieRange, half_precision, tie_range, tied_queries

__all__ = [
    "Definition",
    "Measure",
    "NoRelevant",
    "Problem",
    "TieRange",
    "align",
    "context_answer",
    "counts",
    "external",
    "graded",
    "half_precision",
    "index",
    "measure",
    "measures",
    "parse",
    "parse_all",
    "peers",
    "query_tolerance",
    "recall_bounds",
    "relevance",
    "relevance_bounds",
    "spans",
    "srecall_bounds",
    "tie_range",
    "tied_queries",
]
