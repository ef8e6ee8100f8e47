"""The nouns: frozen, checked when made, columnar inside."""

from semrecall.data.cost import Cost
from semrecall.data.ids import Ids
from semrecall.data.judgments import Judgments
from semrecall.data.multivectors import MultiVectors
from semrecall.data.pairs import Pairs
from semrecall.data.run import Run
from semrecall.data.scores import Scores
from semrecall.data.vectors import Vectors

__all__ = ["Cost", "Ids", "Judgments", "MultiVectors", "Pairs", "Run", "Scores", "Vectors"]
