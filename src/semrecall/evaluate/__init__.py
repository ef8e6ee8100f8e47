"""Evaluate runs against truth and judgments."""
