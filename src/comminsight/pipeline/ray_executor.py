"""Tasks on a Ray cluster: the extra ``ray``.

Ray moves only items and results; the paths in them must mean the same on every node, so the run
lies on shared storage. A task whose worker dies is run again by Ray itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import ray
from ray.exceptions import RayError

from comminsight.pipeline.executor import MAX_KILLS, Err, Item, Ok, Value, attempt

_QUEUED_PER_CPU = 2


class RayExecutor:
    """Workers of the cluster at ``address`` ("auto": the one of this node); without an address one
    is started on this machine with ``workers`` CPUs and ended with ``close``."""

    def __init__(self, workers: int = 0, *, address: str = "") -> None:
        self._is_own = not ray.is_initialized()
        if self._is_own:
            where: dict[str, Any] = (
                {"address": address} if address else {"num_cpus": workers or None}
            )
            ray.init(
                include_dashboard=False, log_to_driver=False, logging_level="error",
                configure_logging=False, **where,
            )  # fmt: skip

    def map_unordered(
        self, fn: Callable[[Item], Value], items: Iterable[Item], *, retries: int = 2
    ) -> Iterator[Ok[Item, Value] | Err[Item]]:
        """One result per item as they come."""
        task = ray.remote(attempt).options(max_retries=MAX_KILLS - 1, num_cpus=1)
        function = ray.put(fn)
        left = iter(items)
        flight: dict[Any, Item] = {}
        is_over = False
        while flight or not is_over:
            most = _QUEUED_PER_CPU * int(ray.cluster_resources().get("CPU", 1))
            while not is_over and len(flight) < most:
                try:
                    item = next(left)
                except StopIteration:
                    is_over = True
                else:
                    flight[task.remote(function, item, retries)] = item
            if flight:
                (done,), _ = ray.wait(list(flight), num_returns=1)
                yield self._result(done, flight.pop(done))

    def close(self) -> None:
        """Leaves the cluster; one that was started here ends."""
        if self._is_own:
            ray.shutdown()

    def _result(self, reference: Any, item: Item) -> Ok[Item, Any] | Err[Item]:
        try:
            found: Ok[Item, Any] | Err[Item] = ray.get(reference)
        except RayError as error:  # the worker died again, or its node did
            return Err(item, f"killed its worker: {type(error).__name__}")
        return found
