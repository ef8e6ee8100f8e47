"""Monitoring: a running system scored on a schedule against a stored truth, and the truth's age."""

from semrecall.watch.aging import Aging
from semrecall.watch.look import Look, Watch
from semrecall.watch.prometheus import Board
from semrecall.watch.schedule import keep_looking

__all__ = ["Aging", "Board", "Look", "Watch", "keep_looking"]
