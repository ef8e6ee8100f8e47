"""Search systems: one protocol, an adapter each, opened by name."""

from semrecall.systems.base import Counters, Knob, Stage, System
from semrecall.systems.spec import base_vectors, is_spec, open_in, open_system, parse_spec

__all__ = [
    "Counters",
    "Knob",
    "Stage",
    "System",
    "base_vectors",
    "is_spec",
    "open_in",
    "open_system",
    "parse_spec",
]
