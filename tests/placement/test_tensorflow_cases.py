"""Which of our tests stands for which of TensorFlow's, of the placer, of device sets and of device names.

The cases are those of ``tensorflow/core/common_runtime/placer_test.cc``, ``device_set_test.cc`` and
``tensorflow/core/util/device_name_utils_test.cc``.
"""

from __future__ import annotations

import importlib
from typing import Final

import pytest

# TensorFlow's case, and our module and test.
PLACER: Final = """
    TestNoConstraints                               test_placer_choices.test_free_choices
    TestNoConstraintsWithPrioritizedKernels         test_placer_choices.test_free_choices
    TestXlaOpPlacement                              test_placer_choices.test_xla_devices_are_for_those_that_ask
    TestGPUInputIntoPrioritizedKernel               test_placer_choices.test_free_choices
    TestGPUInputColocatedWithPrioritizedKernel      test_placer_choices.test_free_choices
    TestDSWithPriority                              test_placer_groups.test_priorities_of_kernels_in_a_group
    TestDSWithGPUPriority                           test_placer_groups.test_priorities_of_kernels_in_a_group
    TestITWithPriority                              test_placer_groups.test_priorities_of_kernels_in_a_group
    TestITWithGPUPriority                           test_placer_groups.test_priorities_of_kernels_in_a_group
    TestITGPU                                       test_placer_groups.test_priorities_of_kernels_in_a_group
    TestSimpleIteratorOnlyGPU                       test_placer_groups.test_priorities_of_kernels_in_a_group
    TestAgreeingPriorities                          test_placer_groups.test_priorities_of_kernels_in_a_group
    TestAgreeingRegularPriorities                   test_placer_groups.test_priorities_of_kernels_in_a_group
    TestConflictingPriorities                       test_placer_groups.test_priorities_of_kernels_in_a_group
    TestConflictingPrioritiesReversed               test_placer_groups.test_priorities_of_kernels_in_a_group
    TestDeviceTypeConstraints                       test_placer_choices.test_free_choices
    TestMetadataColocatedWithInput                  test_placer_choices.test_free_choices
    TestHeuristicGeneratorFollowsSingleConsumer     test_placer_choices.test_free_choices
    TestIgnoreGeneratorHeuristicIfWrongDevice       test_placer_choices.test_free_choices
    TestIgnoreGeneratorHeuristicIfWrongPartialDevice  test_placer_choices.test_free_choices
    TestPartialSpec                                 test_placer_choices.test_free_choices
    TestAssignedDevicePreserved                     test_placer_choices.test_a_device_that_was_assigned_stays
    TestPartialSpecGpuToCpu                         test_placer_choices.test_soft_placement_goes_elsewhere
    TestResourceMove                  test_placer_groups.test_a_resource_moves_to_where_its_user_has_a_kernel
    TestAssignedGpuDeviceToCpuDevice                test_placer_errors.test_what_was_assigned_wrongly
    TestReferenceConnection                         test_placer_groups.test_users_of_a_variable_are_where_it_is
    TestResourceHandle                              test_placer_groups.test_users_of_a_variable_are_where_it_is
    TestResourceHandlesOnDifferentDevicesFails  test_placer_groups.test_resources_on_two_devices_have_no_common_user
    TestReferenceConnectionIgnoreInfeasible         test_placer_groups.test_whose_wish_holds_at_a_reference_edge
    TestReferenceConnectionMoreSpecificDestinationSourceWins \
        test_placer_groups.test_whose_wish_holds_at_a_reference_edge
    TestReferenceConnectionNoSourceDevice           test_placer_groups.test_whose_wish_holds_at_a_reference_edge
    TestColocationGroup                 test_placer_groups.test_a_node_goes_with_the_one_that_its_class_names
    TestMultipleColocationGroups                    test_placer_groups.test_a_node_may_be_in_several_groups
    TestInvalidMultipleColocationGroups \
        test_placer_groups.test_groups_that_no_type_supports_are_an_error_or_given_up
    TestColocationGroupWithReferenceConnections \
        test_placer_groups.test_groups_by_class_and_by_reference_are_one
    TestColocationGroupWithUnsatisfiableReferenceConnections \
        test_placer_groups.test_a_class_that_a_reference_contradicts
    TestColocationAndReferenceConnections           test_placer_groups.test_many_groups_that_overlap
    TestEmptyDeviceSet                              test_placer_errors.test_no_devices
    TestHeterogeneousDeviceSetFailure               test_placer_errors.test_a_wish_that_the_group_can_not_meet
    TestUnknownDevice                       test_placer_errors.test_soft_placement_does_not_change_the_process
    TestUnknownMergedDevice                 test_placer_errors.test_soft_placement_does_not_change_the_process
    TestUnknownAssignedDevice                       test_placer_errors.test_what_was_assigned_wrongly
    TestNoKernelsRegisteredWithNoRequstedDevice     test_placer_errors.test_an_op_without_kernels
    TestNoKernelsRegisteredWithRequestedDeviceLocal  test_placer_errors.test_an_op_without_kernels
    TestNoKernelsRegisteredWithRequestedDeviceRemote \
        test_placer_errors.test_an_op_without_kernels_may_run_in_another_process
    TestNoDevicesRegistered                 test_placer_errors.test_an_op_with_kernels_for_other_devices_only
    TestMalformedDeviceSpecification                test_placer.test_a_malformed_device_is_told_with_its_node
    TestMalformedAssignedDevice                     test_placer_errors.test_what_was_assigned_wrongly
    TestNonUniqueAssignedDevice                     test_placer_errors.test_what_was_assigned_wrongly
    TestNonexistentGpuAllowSoftPlacement            test_placer_choices.test_soft_placement_goes_elsewhere
    TestNonexistentGpuNoAllowSoftPlacement          test_placer_errors.test_a_device_that_does_not_exist
    TestNonexistentGpuNoAllowSoftPlacementFormatTag  test_placer_errors.test_a_device_that_does_not_exist
    TestUnsupportedDeviceNoAllowSoftPlacement       test_placer_errors.test_a_type_without_a_kernel
    TestNonExistentDevice                           test_placer_errors.test_a_process_that_does_not_exist
    TestUseGpuWithNoCuda                            test_placer_errors.test_a_gpu_where_there_is_none
    TestUnsupportedDeviceAllowSoftPlacement         test_placer_choices.test_soft_placement_goes_elsewhere
    TestDeviceTypeConstraintsAllowSoftPlacement \
        test_placer_choices.test_soft_placement_lets_ops_with_one_kernel_decide
    TestUnsatisfiableConstraintWithReferenceConnections \
        test_placer_errors.test_a_reference_between_two_ops_with_no_common_type
    TestGeneratorNodeFollowsConsumerNode            test_placer_choices.test_free_choices
    TestGeneratorNodeDoesntFollowNonColocatedConsumers \
        test_placer_choices.test_a_generator_does_not_follow_consumers_on_several_devices
    RequestedDeviceOnResourceGeneratorIsTreatedAsAssigned \
        test_placer_groups.test_what_a_resource_asks_for_holds_as_if_assigned
    RequestedDeviceCanBeOverridden \
        test_placer_groups.test_what_a_user_of_a_resource_asks_for_may_be_overridden
    AssignedDeviceOfColocatedNodeIsRespected \
        test_placer_errors.test_an_assigned_device_without_a_kernel_for_the_group
    AssignedDevicesAreNotOverriddenDueToResourcesAndColocation \
        test_placer_groups.test_assigned_devices_are_not_overridden
    OutputOneResource                   test_placer_functions.test_a_resource_that_a_call_passes_on_stays
    OutputOneResource_ExtraIdentities   test_placer_functions.test_a_resource_that_a_call_passes_on_stays
    OutputOneResource_OverrideOutputResourceDevice \
        test_placer_functions.test_a_resource_that_a_call_passes_on_stays
    OutputTwoResources                              test_placer_functions.test_two_resources_that_a_call_swaps
    OutputTwoResources_PCOOnCPU                     test_placer_functions.test_two_resources_that_a_call_swaps
    OutputTwoResources_UnassignedResource           test_placer_functions.test_two_resources_that_a_call_swaps
    OutputTwoResources_UnassignedResource_CPU       test_placer_functions.test_two_resources_that_a_call_swaps
    OutputResourceConsumedByMultipleOps \
        test_placer_functions.test_a_resource_from_a_call_with_several_users
    DuplicateInputResource      test_placer_functions.test_a_resource_that_is_given_twice_is_in_one_place
    DuplicateInputs_OutputResourceConsumedByMultipleOps \
        test_placer_functions.test_a_resource_that_is_given_twice_is_in_one_place
    DuplicateInputResource_Conflict \
        test_placer_functions.test_users_of_it_that_ask_for_two_devices_are_in_one_place_too
    TestDstDeviceIsIgnoredWhenConstrainedByResourceEdge \
        test_placer_functions.test_what_the_user_of_a_resource_asks_for_is_ignored
    TestDstDeviceIsIgnoredWhenConstrainedByResourceEdge_EvenWhenPCOIsPlaced \
        test_placer_functions.test_what_the_user_of_a_resource_asks_for_is_ignored
    ResourceConflictInvolvingPCO \
        test_placer_functions.test_resources_of_two_devices_do_not_meet_through_calls
    ResourceConflictInvolvingTwoPCOs \
        test_placer_functions.test_resources_of_two_devices_do_not_meet_through_calls
    DeepDeviceConstraintsPropagated \
        test_placer_functions.test_a_resource_that_a_body_can_make_on_one_device_only
    NestedDeepDeviceConstraintsPropagated \
        test_placer_functions.test_a_resource_that_a_body_can_make_on_one_device_only
    TwoFunctionsBackToBack      test_placer_functions.test_resources_of_two_devices_do_not_meet_through_calls
    NestedTwoFunctionsBackToBack \
        test_placer_functions.test_resources_that_a_body_makes_on_two_devices
    DirectRecursion             test_placer_functions.test_recursion_is_refused_before_anything_is_placed
    IndirectRecursion           test_placer_functions.test_recursion_is_refused_before_anything_is_placed
"""

DEVICE_SET: Final = """
    PrioritizedDeviceTypeList           test_device_set.test_types_come_by_the_priority_of_their_factories
    prioritized_devices                 test_device_set.test_the_order_is_known_anew_when_a_device_is_added
    prioritized_device_types            test_device_set.test_the_order_is_known_anew_when_a_device_is_added
    SortPrioritizedDeviceVector         test_device_set.test_devices_with_priorities_of_their_own
    SortPrioritizedDeviceTypeVector     test_device_set.test_types_with_priorities_of_their_own
"""

DEVICE_NAME: Final = """
    Basic                           test_device_name.test_a_name_of_any_parts_is_written_as_it_is_read
    IsCompleteSpecification         test_device_name.test_patterns_of_whole_names
    IsSpecification                 test_device_name.test_specifications
    SplitDeviceName                 test_device_name.test_splitting
    MergeDevNames                   test_device_name.test_names_that_agree
    MergeDevNamesAllowSoftPlacement  test_device_name.test_names_that_differ
    MergeOverrideDevNames           test_device_name.test_names_that_differ
    MergeUnsetDevNames              test_device_name.test_of_names_that_differ_the_inner_one_holds
    GetNamesForDeviceMappings       test_device_name.test_names_that_a_device_is_looked_up_by
    CanonicalizeDeviceName          test_device_name.test_canonical_names
"""
PACKAGES: Final = {"test_device_name": "tests.framework"}


def cases(table: str) -> dict[str, str]:
    """TensorFlow's cases with our tests."""
    rows = [line.split(maxsplit=1) for line in table.splitlines() if line.strip()]
    assert all(len(row) == 2 for row in rows)
    found = {name: test.strip() for name, test in rows}
    assert len(found) == len(rows)
    return found


def test_every_case_has_a_test() -> None:
    assert [len(cases(table)) for table in (PLACER, DEVICE_SET, DEVICE_NAME)] == [85, 5, 10]


@pytest.mark.parametrize(
    "test", sorted({test for table in (PLACER, DEVICE_SET, DEVICE_NAME) for test in cases(table).values()})
)
def test_the_test_of_a_case_exists(test: str) -> None:
    module, _, function = test.partition(".")
    package = PACKAGES.get(module, "tests.placement")
    assert callable(getattr(importlib.import_module(f"{package}.{module}"), function))
