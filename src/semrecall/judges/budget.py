"""What a run may cost: caps that hold even when every call in flight is as dear as it can be."""

from __future__ import annotations

from dataclasses import dataclass

from semrecall.errors import InputError, Stopped
from semrecall.text import number, plural

__all__ = ["Budget", "Estimate"]

_MILLION = 1e6


@dataclass(frozen=True)
class Estimate:
    """What a run would take, as (low, high). cost: in the currency of the prices; None without.

    low: every reply is as short as it can be; high: each uses all tokens it may.
    """

    requests: int
    tokens_in: tuple[int, int]
    tokens_out: tuple[int, int]
    cost: tuple[float, float] | None = None

    def __str__(self) -> str:
        cost = (
            "cost unknown: give the prices of a million tokens, --price-in and --price-out"
            if self.cost is None
            else f"cost {number(self.cost[0])} to {number(self.cost[1])}"
        )
        return (
            f"{plural(self.requests, 'call')}; tokens in {_span(self.tokens_in)}, "
            f"out {_span(self.tokens_out)}; {cost}"
        )


class Budget:
    """Counts calls and cost against caps. `reserve` before a call, `settle` after it.

    max_requests, max_cost: None is no cap. price_in, price_out: of a million tokens. Raises
    InputError for a cap on cost without prices.
    """

    def __init__(
        self,
        max_requests: int | None = None,
        max_cost: float | None = None,
        price_in: float | None = None,
        price_out: float | None = None,
    ) -> None:
        if (price_in is None) != (price_out is None):
            raise InputError(
                f"price_in is {price_in}, price_out is {price_out}; expected both or neither",
                hint="--price-in and --price-out, each of a million tokens; 0 where nothing is"
                " charged",
            )
        for name, value in (
            ("max_requests", max_requests), ("max_cost", max_cost),
            ("price_in", price_in), ("price_out", price_out),
        ):  # fmt: skip
            if value is not None and not value >= 0:
                raise InputError(f"{name} is {value}; expected 0 or more")
        if max_cost is not None and price_in is None:
            raise InputError(
                "a cap on cost needs prices, and none are given",
                hint="--price-in and --price-out: what the endpoint asks for a million tokens",
            )
        self.max_requests, self.max_cost = max_requests, max_cost
        self._prices = None if price_in is None or price_out is None else (price_in, price_out)
        self.requests = 0
        self.spent = 0.0
        self._reserved = 0.0

    def cost(self, tokens_in: int | None, tokens_out: int | None) -> float | None:
        """The price of a call; None where a price or a count is unknown."""
        if self._prices is None or tokens_in is None or tokens_out is None:
            return None
        return (tokens_in * self._prices[0] + tokens_out * self._prices[1]) / _MILLION

    def reserve(self, tokens_in: int, tokens_out: int) -> float | None:
        """Count a call at its worst, and say what that is.

        None: there is room only if calls in flight turn out cheaper; ask again after the next
        `settle`. Raises Stopped when a cap would be passed.
        """
        if self.max_requests is not None and self.requests >= self.max_requests:
            raise Stopped(
                f"{plural(self.requests, 'call')} made: the cap max_requests is reached",
                hint="what is judged is kept: run the same again with a higher --max-requests",
            )
        worst = self.cost(tokens_in, tokens_out) or 0.0
        if self.max_cost is not None:
            if self.spent + worst > self.max_cost:
                raise Stopped(
                    f"the cap max_cost {number(self.max_cost)} would be passed: "
                    f"{number(self.spent)} spent in {plural(self.requests, 'call')}, and the next "
                    f"may cost {number(worst)}",
                    hint="what is judged is kept: run the same again with a higher --max-cost",
                )
            if self.spent + self._reserved + worst > self.max_cost:
                return None
        self.requests += 1
        self._reserved += worst
        return worst

    def settle(self, reserved: float, cost: float | None) -> None:
        """A call is over. cost: what it took; None: unknown, so it counts at its worst."""
        self._reserved -= reserved
        self.spent += reserved if cost is None else cost


def _span(span: tuple[int, int]) -> str:
    low, high = span
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
