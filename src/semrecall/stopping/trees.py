"""Trees: boosted regression trees, fitted by scikit-learn, kept and evaluated without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import InputError
from semrecall.registry import import_extra

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Trees", "fit_trees"]

_TREES, _DEPTH, _RATE = 80, 4, 0.1
#: Rows a fit needs no more of: beyond them it only takes longer.
_ROWS = 30_000
#: The arrays of the trees, and what they hold.
_PARTS: dict[str, Any] = {
    "feature": np.int64,
    "threshold": np.float64,
    "left": np.int64,
    "right": np.int64,
    "value": np.float64,
}


@dataclass(frozen=True, eq=False)
class Trees:
    """A sum of trees over features (n, f).

    feature, threshold, left, right, value: (t, nodes) each. A row goes left where its feature is
    at most the threshold; a leaf has itself as both children.
    base, rate: the sum is base + rate * the values of the leaves.
    depth: steps from the root to the deepest leaf.
    """

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: NDArray[np.float64]
    base: float
    rate: float
    depth: int

    def __len__(self) -> int:
        return len(self.feature)

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """The sum for each row, (n,)."""
        trees = np.arange(len(self))[None, :]
        at = np.zeros((len(rows), len(self)), dtype=np.int64)
        number = np.arange(len(rows))[:, None]
        for _ in range(self.depth):
            goes = rows[number, self.feature[trees, at]] <= self.threshold[trees, at]
            at = np.where(goes, self.left[trees, at], self.right[trees, at])
        return np.asarray(self.base + self.rate * self.value[trees, at].sum(axis=1))

    def to_dict(self) -> dict[str, Any]:
        """As plain lists; numbers keep all their digits."""
        lists = {name: getattr(self, name).tolist() for name in _PARTS}
        return {"base": self.base, "rate": self.rate, "depth": self.depth, **lists}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], features: int) -> Trees:
        """The trees of `to_dict`, checked: no row can leave them, or go round for ever."""
        try:
            arrays: dict[str, Any] = {
                name: np.array(document[name], dtype=kind) for name, kind in _PARTS.items()
            }
            found = cls(
                **arrays,
                base=float(document["base"]),
                rate=float(document["rate"]),
                depth=int(document["depth"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the trees cannot be read: {error!r}") from error
        shapes = {getattr(found, name).shape for name in _PARTS}
        if len(shapes) != 1 or found.feature.ndim != 2 or found.feature.size == 0:
            raise InputError(f"the trees have parts of shapes {sorted(shapes)}")
        nodes = found.feature.shape[1]
        for name, limit in (("feature", features), ("left", nodes), ("right", nodes)):
            part = getattr(found, name)
            if part.min() < 0 or part.max() >= limit:
                raise InputError(f"the trees have a {name} that is not from 0 to {limit - 1}")
        if not 0 <= found.depth <= nodes or not np.isfinite(found.value).all():
            raise InputError("the trees have no depth or values that can be")
        return found


def fit_trees(rows: NDArray[np.float32], wanted: NDArray[np.float64], seed: int) -> Trees:
    """Trees whose sums are near the wanted values (n,) of rows (n, f); the same for a seed."""
    ensemble = import_extra("sklearn.ensemble", "stopping", "learning when to stop")
    if len(rows) > _ROWS:
        chosen = np.sort(np.random.default_rng(seed).permutation(len(rows))[:_ROWS])
        rows, wanted = rows[chosen], wanted[chosen]
    if wanted.min() == wanted.max():
        # All queries are alike: nothing to grow trees on.
        none = np.zeros((1, 1))
        leaf = np.zeros((1, 1), dtype=np.int64)
        return Trees(leaf, none, leaf, leaf, none, float(wanted[0]), 1.0, 0)
    model = ensemble.GradientBoostingRegressor(
        n_estimators=_TREES, max_depth=_DEPTH, learning_rate=_RATE, subsample=0.5,
        min_samples_leaf=max(5, min(50, len(rows) // 100)), random_state=seed,
    )  # fmt: skip
    model.fit(rows, wanted)
    return _kept([tree.tree_ for tree in model.estimators_[:, 0]], float(wanted.mean()))


def _kept(trees: list[Any], base: float) -> Trees:
    """The trees of scikit-learn as arrays."""
    nodes = max(tree.node_count for tree in trees)

    def stacked(name: str, dtype: Any) -> NDArray[Any]:
        rows = np.zeros((len(trees), nodes), dtype=dtype)
        for row, tree in zip(rows, trees, strict=True):
            row[: tree.node_count] = np.reshape(getattr(tree, name), tree.node_count)
        return rows

    left, right = stacked("children_left", np.int64), stacked("children_right", np.int64)
    own = np.broadcast_to(np.arange(nodes), left.shape)
    feature = np.maximum(stacked("feature", np.int64), 0)
    return Trees(
        feature, stacked("threshold", np.float64),
        np.where(left < 0, own, left), np.where(right < 0, own, right),
        stacked("value", np.float64), base, _RATE, max(tree.max_depth for tree in trees),
    )  # fmt: skip
