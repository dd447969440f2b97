"""StepStats and RunMetadata, with the fields of ``tensorflow/core/framework/step_stats.proto``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from asyncexec.framework.graph_def import GraphDef


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class NodeExecStats(_Record):
    """One live execution of a node.  ``..._rel_...`` counts from ``all_start``; ``all_start`` is since 1970."""

    node_name: str
    all_start_micros: int
    op_start_rel_micros: int = 0
    op_end_rel_micros: int = 0
    all_end_rel_micros: int = 0
    all_start_nanos: int = 0
    op_start_rel_nanos: int = 0
    op_end_rel_nanos: int = 0
    all_end_rel_nanos: int = 0
    scheduled_micros: int = 0
    scheduled_nanos: int = 0
    timeline_label: str = ""
    thread_id: int = 0


class DeviceStepStats(_Record):
    """What one device ran in a step."""

    device: str
    node_stats: list[NodeExecStats] = Field(default_factory=list)
    thread_names: dict[int, str] = Field(default_factory=dict)


class StepStats(_Record):
    """What a step ran, device by device."""

    dev_stats: list[DeviceStepStats] = Field(default_factory=list)


class RunMetadata(_Record):
    """Filled in place by ``session.run(..., metadata=RunMetadata())``.

    ``step_stats`` needs ``RunOptions(trace=True)``; ``partition_graphs`` needs
    ``RunOptions(output_partition_graphs=True)``.
    """

    step_stats: StepStats = Field(default_factory=StepStats)
    partition_graphs: list[GraphDef] = Field(default_factory=list)
