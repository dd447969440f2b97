"""ax.hooks.Prometheus, read back as Prometheus would."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import asyncexec as ax
from tests.hooks.programs import Program


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


async def test_metrics() -> None:
    registry = CollectorRegistry()
    await Program().run(ax.hooks.Prometheus(registry))
    assert value(registry, "asyncexec_seconds_count", kind="step", outcome="ok") == 2
    assert value(registry, "asyncexec_seconds_count", kind="step", outcome="error") == 1
    assert value(registry, "asyncexec_seconds_count", kind="item", outcome="ok") == 1
    assert value(registry, "asyncexec_seconds_count", kind="item", outcome="error") == 1
    assert value(registry, "asyncexec_seconds_count", kind="stream", outcome="ok") == 1
    assert value(registry, "asyncexec_node_seconds_count", node="fetch", op="fetch", outcome="ok") == 2
    assert value(registry, "asyncexec_node_seconds_count", node="fetch", op="fetch", outcome="error") == 2
    assert value(registry, "asyncexec_node_seconds_count", node="work", op="work", outcome="ok") == 2
    assert value(registry, "asyncexec_retries_total", node="fetch") == 1
    assert value(registry, "asyncexec_batch_rows_sum", node="model") == 1
    waited_s = value(registry, "asyncexec_node_waited_seconds_total", node="work")
    assert waited_s is not None
    assert waited_s > 0
    for kind in ("step", "stream", "item"):
        assert value(registry, "asyncexec_under_way", kind=kind) == 0
    assert b"# TYPE asyncexec_seconds histogram" in generate_latest(registry)


async def test_one_hook_for_two_sessions_and_a_namespace() -> None:
    registry = CollectorRegistry()
    hook = ax.hooks.Prometheus(registry, namespace="shop", buckets=[1.0])
    await Program().run(hook)
    await Program().run(hook)
    assert value(registry, "shop_seconds_count", kind="step", outcome="ok") == 4
    assert value(registry, "shop_seconds_bucket", kind="step", outcome="ok", le="+Inf") == 4
    with pytest.raises(ValueError, match="Duplicated"):
        ax.hooks.Prometheus(registry, namespace="shop")


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    with pytest.raises(ax.errors.MissingExtraError, match=r'pip install "asyncexec\[prometheus\]"'):
        ax.hooks.Prometheus()
