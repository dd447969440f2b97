"""What is said of graphs that can't be placed: status, node, group, what there is."""

from __future__ import annotations

import pytest

from asyncexec.framework.errors import FailedPreconditionError, InternalError, InvalidArgumentError
from asyncexec.placement.device_set import DeviceSet
from tests.placement.fake_devices import FACTORIES, PREFIX, fake_device, placed

CPU = f"{PREFIX}/device:FakeCPU:0"
GPU = f"{PREFIX}/device:FakeGPU:0"


def devices(*names: str) -> DeviceSet:
    return DeviceSet(map(fake_device, names), FACTORIES)


def refused(text: str, among: DeviceSet | None = None, **others: object) -> str:
    """The message of the InvalidArgumentError that placing *text* raises."""
    with pytest.raises(InvalidArgumentError) as caught:
        placed(text, among, **others)  # type: ignore[arg-type]
    return str(caught.value)


def test_no_devices() -> None:
    with pytest.raises(FailedPreconditionError, match="No devices are registered"):
        placed("in: FakeInput", devices())


def test_a_wish_that_the_group_can_not_meet() -> None:
    text = """
        in: FakeInput
        var: VariableGPU
        assign: FakeAssign(var, in) @ /job:b/task:1
    """
    among = devices("/job:b/replica:0/task:0/device:FakeGPU:0", "/job:b/replica:0/task:1/device:FakeCPU:0")
    message = refused(text, among)
    assert (
        "Cannot assign a device for operation var: Could not satisfy explicit device specification '' because the node "
        "{{colocation_node var}} was colocated with a group of nodes that required incompatible device "
        "'/job:b/task:1'. All available devices [/job:b/replica:0/task:0/device:FakeGPU:0, "
        "/job:b/replica:0/task:1/device:FakeCPU:0]"
    ) in message
    assert "\nVariableGPU: FakeGPU\nFakeAssign: FakeGPU FakeCPU\n" in message
    assert "\n  var (VariableGPU)\n  assign (FakeAssign) /job:b/task:1" in message


@pytest.mark.parametrize("device", ["/job:foo", "/job:foo/device:FakeCPU:0", "/job:a/task:3", "/replica:1"])
def test_soft_placement_does_not_change_the_process(device: str) -> None:
    message = refused(f"in: FakeInput @ {device}", soft=True)
    assert f"{{{{node in}}}} was explicitly assigned to {device} but available devices are [ {PREFIX}" in message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/job:foo", "Assigned device '/job:foo' does not match any device"),
        ("/job:a", "Assigned device '/job:a' does not match any device"),
        ("/foo:bar", "Malformed assigned device '/foo:bar'"),
        (GPU, f"Assigned device '{GPU}' does not have registered OpKernel support for FakeInput"),
    ],
)
def test_what_was_assigned_wrongly(name: str, message: str) -> None:
    with pytest.raises(InternalError) as caught:
        placed("in: FakeInput", assigned={"in": name})
    assert message in caught.value.message
    assert caught.value.node == "in"


def test_an_assigned_device_without_a_kernel_for_the_group() -> None:
    text = """
        a: Placeholder[resource]
        iter: IteratorGPU(a)
    """
    assert (
        f"{{{{colocation_node iter}}}} was colocated with a group of nodes that required incompatible device '{CPU}'"
    ) in refused(text, assigned={"a": CPU})


@pytest.mark.parametrize("wish", ["", " @ /job:b/replica:0/task:0/device:FakeGPU:0"])
def test_an_op_without_kernels(wish: str) -> None:
    here = devices("/job:b/replica:0/task:0/device:FakeCPU:0", "/job:b/replica:0/task:0/device:FakeGPU:0")
    message = refused(f"var: VariableNoKernels{wish}", here, soft=False, default_local_device=here.devices[0])
    assert "No OpKernel was registered to support Op 'VariableNoKernels' used by {{node var}}" in message
    assert "Registered devices: [FakeCPU, FakeGPU]\nRegistered kernels:\n  <no registered kernels>" in message


def test_an_op_without_kernels_may_run_in_another_process() -> None:
    remote = "/job:b/replica:0/task:1/device:FakeGPU:0"
    among = devices(remote, "/job:b/replica:0/task:0/device:FakeCPU:0")
    text = f"var: VariableNoKernels @ {remote}"
    assert placed(text, among, soft=False, default_local_device=among.devices[1]) == f"var @ {remote}"
    among.client_device = among.devices[1]
    assert placed(text, among, soft=False) == f"var @ {remote}"


def test_an_op_with_kernels_for_other_devices_only() -> None:
    message = refused("var: VariableGPU", devices(CPU))
    assert "No OpKernel was registered to support Op 'VariableGPU' used by {{node var}}" in message
    assert "device='FakeGPU'" in message


def test_kernels_need_not_be_there_where_the_rules_say_so() -> None:
    text = """
        var: VariableNoKernels
        asked: VariableNoKernels @ /device:FakeCPU:3
        other: VariableGPU @ /device:FakeGPU:2
    """
    expected = "var @ FakeGPU:0\nasked @ FakeCPU:3\nother @ FakeGPU:2"
    assert placed(text, soft=False, needs_kernels=False) == expected


def test_a_malformed_name_is_told_with_its_node() -> None:
    graph_error = refused("in: FakeInput @ /foo:bar")
    assert "Malformed device specification '/foo:bar'" in graph_error


def test_a_device_that_does_not_exist() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        placed("in: FakeDevice @ /device:FakeGPU:11", soft=False)
    assert caught.value.message.startswith(
        "Cannot assign a device for operation in: {{node in}} was explicitly assigned to /device:FakeGPU:11 but "
        "available devices are [ /job:a/replica:0/task:0/device:FakeCPU:0, "
    )
    assert "]. Make sure the device specification refers to a valid device." in caught.value.message
    assert caught.value.node == "in"


def test_a_process_that_does_not_exist() -> None:
    message = refused("var: VariableGPU @ /job:foo/replica:17", soft=False)
    assert "was explicitly assigned to /job:foo/replica:17 but available devices" in message


def test_a_type_without_a_kernel() -> None:
    message = refused("var: VariableGPU @ /device:FakeCPU:0", soft=False)
    assert (
        "Could not satisfy explicit device specification '/device:FakeCPU:0' because no supported kernel for FakeCPU "
        "devices is available."
    ) in message
    assert "Op: VariableGPU\nRegistered kernels:\n  device='FakeGPU'" in message


def test_a_gpu_where_there_is_none() -> None:
    message = refused("var: VariableGPU @ /device:gpu:0", soft=False)
    assert "The requested device appears to be a GPU, but there is none here." in message


def test_a_reference_between_two_ops_with_no_common_type() -> None:
    text = """
        var: VariableGPU
        in: FakeInput
        assign: AssignCPU(var, in)
    """
    message = refused(text)
    assert message.startswith(
        "Nodes were connected by a reference connection (requiring them to be on the same device)"
    )
    assert "Cannot colocate nodes {{colocation_node var}} and {{colocation_node assign}}" in message
    assert "\nVariableGPU: FakeGPU\n" in message
    assert "\nAssignCPU: FakeCPU\n" in message


def test_colocated_nodes_that_ask_for_two_devices() -> None:
    text = """
        a: FakeCPUGPUOutput @ /device:FakeCPU:1
        b: FakeCPUGPUOutput[_class=["loc:@a"]] @ /device:FakeCPU:2
    """
    assert (
        "Cannot colocate nodes {{colocation_node b}} and {{colocation_node a}}: Cannot merge devices with incompatible "
        "ids: '/device:FakeCPU:2' and '/device:FakeCPU:1'"
    ) in refused(text, soft=False)
    assert placed(text) == "a @ FakeCPU:0\nb @ FakeCPU:0"


def test_a_large_group_is_not_told_whole() -> None:
    more = "".join(f'\nn{i}: FakeVariable[_class=["loc:@var"]]' for i in range(50))
    message = refused(f"var: FakeVariable @ /job:foo{more}", soft=False)
    assert "and 31 more" in message
    assert message.count("(FakeVariable)") == 20
