"""Metrics as text, by prometheus-client: the only module that imports it.

Rule: the text is made at a scrape from integers that exist already; nothing of prometheus-client is on the path of a
step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from interlock.errors import MissingExtraError
from interlock.observe.metrics.families import FAMILIES, Family, Histogram, Samples

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The type of the text: the format that every Prometheus reads."""


def client_module() -> Any:
    """Return prometheus-client. Raises MissingExtraError."""
    try:
        return import_module("prometheus_client")
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        message = "metrics need the extra `metrics`"
        raise MissingExtraError(message, code="extra.metrics", hint="pip install 'interlock[metrics]'") from error


def render_metrics(found: Mapping[Family, Samples], bounds: Mapping[Family, tuple[float, ...]]) -> bytes:
    """Return the metrics as text. `bounds`: the upper bounds of the buckets of each histogram, in seconds.

    Raises MissingExtraError.
    """
    text: bytes = client_module().generate_latest(_Collected(found, bounds))
    return text


class _Collected:
    """The families of one scrape, as prometheus-client collects them."""

    def __init__(self, found: Mapping[Family, Samples], bounds: Mapping[Family, tuple[float, ...]]) -> None:
        self._found = found
        self._bounds = bounds

    def collect(self) -> Iterable[Metric]:
        """Yield every family that has a value, or would have one here."""
        core = import_module("prometheus_client.metrics_core")
        for family in FAMILIES:
            if family not in self._found:
                continue
            bounds: list[str] = []
            if family.type == "histogram":
                metric = core.HistogramMetricFamily(family.name, family.help, labels=family.labels)
                bounds = [*map(repr, self._bounds[family]), "+Inf"]
            else:
                kind = core.CounterMetricFamily if family.type == "counter" else core.GaugeMetricFamily
                metric = kind(family.name, family.help, labels=family.labels)
            for labels, value in sorted(self._found[family].items()):
                if isinstance(value, Histogram):
                    metric.add_metric(labels, list(zip(bounds, _cumulated(value.counts), strict=True)), value.seconds)
                else:
                    metric.add_metric(labels, value)
            yield metric


def _cumulated(counts: Iterable[int]) -> Iterable[int]:
    total = 0
    for each in counts:
        total += each
        yield total
