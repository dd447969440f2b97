"""Where each test of TensorFlow's ``control_flow_ops_py_test.py`` is: the test here that shows the same, or why not.

The file is ``tensorflow/python/kernel_tests/control_flow/control_flow_ops_py_test.py``; its benchmarks, and what it has
disabled itself, are not counted.  Where it has a GPU, the tests here have a second CPU; the parts of sparse tensors and
of indexed slices are tested as members of a named tuple.
"""

from __future__ import annotations

# Each shows what TensorFlow's test shows, parts about gradients aside.
PORTED = """
    testRefIdentity test_switch_merge::test_a_reference_through_an_identity_sees_the_assignment
    testRefEnter test_enter_exit::test_a_reference_enters_and_is_assigned_to_inside
    testRefSwitch test_switch_merge::test_a_reference_through_a_switch_can_be_assigned_to
    testEnterMulExit test_enter_exit::test_into_a_frame_and_out_again
    testEnterShapePropagation test_enter_exit::test_only_what_stays_the_same_keeps_its_shape_on_the_way_in
    testSwitchMergeIndexedSlices test_switch_merge::test_tensors_of_one_record_take_the_same_way
    testSwitchDeadBranch test_switch_merge::test_the_output_not_chosen_has_no_value
    testSwitchMergeLess test_switch_merge::test_a_computed_predicate
    testSwitchMergeAddIdentity test_switch_merge::test_one_side_adds_and_the_other_passes
    testSwitchMergeAddMul test_switch_merge::test_one_side_adds_and_the_other_multiplies
    testLoop_false test_enter_exit::test_a_loop_that_ends_at_once
    testLoop_1 test_enter_exit::test_a_counter_with_one_node_on_another_device
    testLoop_2 test_enter_exit::test_a_counter_with_one_node_on_another_device
    testDifferentFrame test_enter_exit::test_inputs_from_two_frames_are_refused
    testCondOutputShape test_cond::test_the_shape_is_what_both_branches_have
    testFeedable test_while::test_the_initial_value_may_be_fed_and_what_is_inside_may_not
    testCondIndexedSlices test_cond::test_parts_of_indexed_slices
    testCondMismatchedIndexedSlices test_cond::test_slices_in_one_branch_and_a_tensor_in_the_other
    testCondSparseTensor test_cond::test_parts_of_a_sparse_tensor
    testCondResource test_cond_effects::test_an_assignment_in_the_branch_taken
    testCondColocation test_cond_effects::test_a_variable_is_let_in_on_its_own_device
    testCond_1 test_cond::test_the_predicate_decides[true]
    testCond_2 test_cond::test_the_predicate_decides[false]
    testCond_3 test_cond::test_the_same_predicate_inside_and_outside
    testCondPruning test_cond_effects::test_only_what_is_fetched_of_the_results_runs
    testCond_5 test_cond::test_a_chain_of_ten_that_dies_half_way
    testCond_6 test_cond::test_a_variable_as_the_result_of_a_branch
    testCond_7 test_cond::test_several_results_beside_captured_ones
    testCond_Device test_cond_effects::test_everything_runs_on_the_device_that_is_asked_for_around
    testCondSwitchColocatedWithInputWhenInputExplicitlyPlacedOnCPU test_cond_effects::test_a_switch_is_where_its_data_is
    testCondAccessTrueBranchTensorInFalseBranchRaises test_cond::test_a_tensor_of_one_branch_is_refused_in_the_other
    testSwitchCaseAccessBranch1TensorInBranch4Raises test_cond::test_a_tensor_of_one_case_is_refused_in_another
    testCondListOutput test_cond::test_results_keep_their_structure[list]
    testTupleOutput test_cond::test_results_keep_their_structure[tuple]
    testDictOutput test_cond::test_results_keep_their_structure[dict]
    testEmbeddedListOutput test_cond::test_results_keep_their_structure[list_in_list]
    testEmbeddedTupleOutput test_cond::test_results_keep_their_structure[tuple_in_tuple]
    testEmbeddedDictOutput test_cond::test_results_keep_their_structure[dict_in_dict]
    testCheckNestedOutputStruct test_cond::test_dicts_with_different_keys_are_refused
    testCondWithControl test_cond_effects::test_a_condition_on_a_placeholder_inside
    testUninitializedRefIdentity test_switch_merge::test_a_reference_to_what_is_not_initialized_may_be_passed_on
    testCondSwitchIdentity test_cond_effects::test_an_assertion_in_the_other_branch_stays_there
    testCondRecvIdentity test_cond_effects::test_an_assertion_in_the_other_branch_stays_there
    testCondPredicateTensor test_functions::test_the_second_result_of_a_function_as_predicate
    testCondFeedConstantPredicate test_cond::test_a_predicate_that_is_constant_unless_it_is_fed
    testCondFeedPlaceholderWithDefaultPredicate test_cond::test_a_predicate_that_is_constant_unless_it_is_fed
    testCondTensorDeps test_functions::test_a_function_that_waits_for_a_tensor_from_outside
    testCondAutoControlDeps test_functions::test_every_effect_of_a_branch_runs_in_the_order_it_is_written_in_a_function
    testWhileAutoControlDeps test_functions::test_every_effect_of_a_loop_runs_in_the_order_it_is_written_in_a_function
    testWhile_1 test_while::test_ten_thousand_iterations
    testWhileExternalControlDependencies test_while_effects::test_an_outer_operation_that_the_body_waits_for_runs_once
    testWhileExternalControlDependenciesNoInput test_while_effects::test_a_constant_that_waits_for_an_outer_operation
    testWhileWithRefs_1 test_switch_merge::test_a_reference_goes_round_a_loop_as_a_reference
    testWhile_2 test_while::test_a_sum
    testWhileWithMaximumIterations test_while::test_a_sum_that_is_cut_short
    testWhileWithMaximumIterationsAndSingleArgument test_while::test_a_maximum_of_one_iteration
    testWhile_3 test_while::test_more_iterations_than_may_run_at_once
    testWhile_4 test_while::test_elements_taken_by_the_counter
    testWhile_5 test_while::test_slices_taken_by_the_counter_are_joined
    testWhile_Device test_while::test_the_body_is_placed_where_the_loop_is_asked_for
    testWhile_Gpu_1 test_while::test_the_body_on_another_device
    testWhile_Gpu_2 test_while::test_the_body_on_another_device
    testWhileShape test_while::test_a_shape_that_is_not_told
    testWhileBadShape test_while::test_refused[other_shape_at_first]
    testWhileBadBodyReturn test_while::test_refused[one_more]
    testWhileWithNonTensorInput_Scalar test_while::test_a_number_as_variable
    testWhileWithNonTensorInput_Vector test_while::test_an_array_as_variable
    testWhileShapeInference test_while::test_a_shape_told_in_part
    testWhileShapeInferenceBadShape test_while::test_the_message_tells_how_to_let_a_shape_change
    testWhileShapeInferenceSparseTensor test_while::test_parts_of_a_sparse_tensor_whose_rank_grows
    testWhileBadShapeSparseTensor test_while::test_parts_of_a_sparse_tensor_whose_shapes_do_not_fit
    testWhileShapeInferenceIndexedSlices test_while::test_parts_of_indexed_slices
    testWhileBadShapeIndexedSlices test_while::test_parts_of_a_sparse_tensor_whose_shapes_do_not_fit
    testWhileShapeInvariantTensorSpec test_while::test_a_rank_that_grows
    testWhileShapeInvariantWrongTypeSpecType test_while::test_refused[shapes_of_another_nest]
    testWhileShapeInvariantBadType test_while::test_refused[no_shapes]
    testNestedWhile_1 test_while_nested::test_a_sum_in_each_iteration
    testNestedWhile_2 test_while_nested::test_what_goes_in_and_what_comes_out_on_another_device
    testWhileWithControl_1 test_while_effects::test_a_constant_that_waits_for_the_variable_of_the_loop
    testWhileWithControl_2 test_while_effects::test_a_constant_that_waits_for_the_variable_of_the_loop
    testWhileWithControl_3 test_while_effects::test_a_placeholder_to_wait_for[captured]
    testWhileWithControl_4 test_while_effects::test_a_placeholder_to_wait_for[identity]
    testWhileWithControl_5 test_while_effects::test_a_placeholder_to_wait_for[in_the_body]
    testWhileCondWithControl test_while_effects::test_conds_in_predicate_and_body_under_a_condition_from_outside
    testWhileCondWithControl_1 test_while_effects::test_a_variable_squared_by_a_cond_in_each_iteration
    testWhileCondExitControl test_while_effects::test_a_constant_that_waits_for_a_loop_in_its_branch
    testCondWhile_1 test_while_nested::test_a_loop_in_the_branch_taken
    testCondWhile_2 test_while_nested::test_a_loop_in_the_branch_taken
    testCondWhile_3 test_while_nested::test_a_loop_in_a_branch_with_its_body_on_another_device
    testWhileCond_1 test_while_nested::test_a_cond_in_the_body[of_the_loop]
    testWhileCond_2 test_while_nested::test_a_cond_in_the_body[of_outside]
    testWhileCond_3 test_while_nested::test_a_cond_in_the_body[computed]
    testWhileUpdateVariable_1 test_while_effects::test_variables_updated_in_part
    testWhileUpdateVariable_2 test_while_effects::test_variables_updated_in_part
    testWhileUpdateVariable_3 test_while_effects::test_the_updated_variable_as_a_variable_of_the_loop
    testWhileUpdateVariable_4 test_while_effects::test_one_assignment_outside_and_one_in_the_body
    testWhileUpdateVariable_5 test_while_effects::test_the_predicate_reads_a_variable
    testWhileUpdateVariable_6 test_while_effects::test_one_assignment_after_the_other
    testWhileQueue_1 test_while_effects::test_a_queue_is_filled
    testWhileTimeOut test_while::test_a_loop_without_end_meets_its_deadline
    testWhileStack_1 test_while_effects::test_a_stack_is_filled_by_one_loop_and_emptied_by_the_next
    testTfFunctionInV1WhileLoop test_functions::test_a_function_that_makes_a_constant_as_body
    testGpuResourceAccess test_while_effects::test_a_cond_that_reads_a_variable_of_another_device_in_a_loop
    testNestedResourceAccess test_functions::test_a_loop_in_a_cond_in_a_loop_in_a_function
    testWhile_NestedInput test_while::test_nests_keep_their_structure
    testWhile_NestedBadArityFails test_while::test_a_nest_that_loses_a_member_is_refused
    testNestedWhileAndTensorArray test_while_effects::test_a_tensor_array_through_two_loops
    testOneValueCond test_cond::test_one_value_from_outside
    testExampleCond test_cond::test_two_norms_to_choose_from
    testCase test_case_and_groups::test_the_first_true_predicate_decides
    testCaseSideEffects test_case_and_groups::test_only_the_case_chosen_assigns
    testOneOpCond test_cond_effects::test_one_assignment_in_each_branch
    testWithOpsDependencies test_case_and_groups::test_a_tensor_that_waits_for_an_initializer
    testWithTensorDependencies test_case_and_groups::test_a_tensor_that_waits_for_one_that_waits_for_an_initializer
    testWithIndexedSlicesDependencies test_case_and_groups::test_a_row_of_a_variable_after_its_initializer
    testDependenciesDevice test_case_and_groups::test_what_waits_is_colocated_where_that_is_asked_for
    testGroup test_case_and_groups::test_a_group_runs_all_of_its_members
    testGroupEmpty test_case_and_groups::test_a_group_of_nothing
    testMergeShapes test_switch_merge::test_the_shape_of_a_merge_is_what_its_inputs_share
    testRefSelect test_switch_merge::test_the_shape_of_a_reference_chosen_among_several
    testRunLoopTensor test_while::test_a_tensor_that_escapes_from_the_body_cannot_be_fetched
    testWhilePyFuncBasic test_while::test_a_python_function_in_the_body
    testWhileFuncBasic test_functions::test_a_function_called_in_the_body
    testQIntSwitchMerge test_switch_merge::test_dtypes_without_arithmetic
    testQIntRefSwitchMerge test_switch_merge::test_references_are_switched_and_merged_whatever_their_dtype
    testUInt64SwitchMerge test_switch_merge::test_dtypes_without_arithmetic
    testQIntArgAndRet test_functions::test_a_dtype_without_arithmetic_as_argument_and_result
    testSparseIdentity test_enter_exit::test_all_parts_of_a_sparse_tensor_pass_an_identity
    testSparseEnterExit test_enter_exit::test_all_parts_of_a_sparse_tensor_pass_a_frame
    testWhileOutputShapeWithShapeInvariantsUnknownRank test_while::test_the_result_has_the_shape_that_is_told
    testWhileOutputShapeWithShapeInvariantsPartialShape test_while::test_the_result_has_the_shape_that_is_told
    testFunctionInWhile test_functions::test_a_function_as_body
    testInvalidContext test_while_nested::test_a_tensor_of_a_loop_is_refused_elsewhere[outside]
    testInvalidContextInCond test_while_nested::test_a_tensor_of_a_loop_is_refused_elsewhere[in_a_branch]
    testInvalidContextInWhile test_while_nested::test_a_tensor_of_a_loop_is_refused_elsewhere[in_another_loop]
    testValidWhileContext test_while_nested::test_a_tensor_of_the_body_in_a_loop_in_there
    testValidNestedContexts test_while_nested::test_the_result_of_a_cond_in_a_loop_in_a_cond_in_a_loop
    testInvalidNestedContexts test_while_nested::test_a_tensor_of_a_loop_is_refused_in_another_of_the_same_branch
    testTensors test_case_and_groups::test_each_member_of_a_tuple_waits_for_all
    testIndexedSlices test_case_and_groups::test_rows_that_wait_for_one_another
    testAcceptTensorsAsControlInputs test_case_and_groups::test_a_tuple_waits_for_its_control_inputs
"""

# Each runs the graph that TensorFlow's test takes gradients of.
GRAPH_ONLY = """
    testCondWithTensorArrayGrad ../test_cond::test_values[map_in_branch]
    testCondResourceGrad test_cond::test_a_variable_as_the_result_of_a_branch
    testCondGrad_1 test_forward_parts::test_of_conds[grad_1]
    testCondComputeGradAfterSessRun test_forward_parts::test_of_conds[after_session_run]
    testNestedCondComputeGradAfterSessRun test_forward_parts::test_of_conds[nested_after_session_run]
    testCondGrad_2 test_forward_parts::test_of_conds[grad_2_true]
    testCondGrad_Gather test_forward_parts::test_of_conds[gather_true]
    testCondGrad_ResourceVarSparseRead test_forward_parts::test_of_conds[sparse_read]
    testCondGrad_MultiGather test_forward_parts::test_of_conds[multi_gather_true]
    testNestedWhileLoopWithMaxItersFromOuterContextInXLAContext test_while_nested::test_limits_from_the_body_around
    testWhileCondGradMultiDevice test_forward_parts::test_of_loops[multi_device_true]
    testWhileGrad_Square test_forward_parts::test_of_loops[square]
    testWhileGrad_Shape test_forward_parts::test_of_loops[shape]
    testWhileGrad_BaseShape test_forward_parts::test_of_loops[base_shape]
    testWhileGradAfterSessionRun ../test_while_loop::test_values[powers]
    testNestedWhileGradAfterSessionRun ../test_while_loop::test_values[nested_powers]
    testWhileGrad_MultipleUses test_forward_parts::test_of_loops[multiple_uses]
    testWhileGrad_LoopAdd test_forward_parts::test_of_loops[loop_add]
    testWhileGrad_Mul test_forward_parts::test_of_loops[mul_10]
    testWhileGradInControlDeps test_forward_parts::test_of_loops[in_control_dependencies]
    testNestedWhileCondWhileGrad test_forward_parts::test_of_loops[nested_while_cond_while]
    testWhileGrad_Variable test_forward_parts::test_of_loops[variable]
    testWhileGrad_ResourceVariable test_forward_parts::test_of_loops[variable]
    testWhileGrad_ResourceVarInFunctionCall test_functions::test_a_function_in_the_body_reads_a_variable
    testWhileGrad_ResourceVarInNestedFunctionCall test_functions::test_nested_functions_in_the_body_read_a_variable
    testWhileGrad_ResourceVarInLoopInFunctionCall test_functions::test_a_loop_in_a_function_in_the_body_reads_a_variable
    testWhileCondGrad_ResourceVarInFunctionCall test_functions::test_functions_in_a_cond_in_the_body_read_variables
    testWhileGrad_ResourceVarSparseRead test_forward_parts::test_of_loops[sparse_read]
    testWhileGrad_MultiResourceVarSparseRead test_forward_parts::test_of_loops[multi_sparse_read]
    testWhileGrad_Gather test_forward_parts::test_of_loops[gather]
    testWhileGrad_GatherNoFanOut test_forward_parts::test_of_loops[gather_no_fan_out]
    testWhileGradInCond test_forward_parts::test_of_loops[in_cond]
    testWhileGradInWhile test_forward_parts::test_of_loops[in_while]
    testWhileGrad_ys_xs test_forward_parts::test_of_loops[ys_xs]
    testWhileGrad_Dependency test_forward_parts::test_of_loops[dependency]
    testWhileGrad_NoGradient test_forward_parts::test_of_loops[no_gradient]
    testWhileGrad_NoDependency test_forward_parts::test_of_loops[no_dependency]
    testWhileGrad_Const test_forward_parts::test_of_loops[const]
    testWhileGrad_SerialTwoLoops test_forward_parts::test_of_loops[serial_two_loops]
    testWhileGrad_ParallelTwoLoops test_forward_parts::test_of_loops[parallel_two_loops]
    testWhileGrad_OneOutputWithControlDependencyOnSecond test_forward_parts::test_of_loops[control_dependency_on_second]
    testNestedWhileGrad_Simple test_forward_parts::test_of_loops[nested_simple]
    testNestedWhileGrad_SerialInner test_forward_parts::test_of_loops[serial_inner]
    testNestedWhileGrad_ParallelInner test_forward_parts::test_of_loops[parallel_inner]
    testNestedWhileGrad_ParallelIterations test_forward_parts::test_of_loops[parallel_iterations]
    testWhileCondGrad_Simple test_forward_parts::test_of_loops[cond_simple]
    testWhileCondGrad_UnknownShape test_forward_parts::test_of_loops[cond_unknown_shape]
    testWhileGrad_Concat test_forward_parts::test_of_loops[concat]
    testWhileWithRefsWithGradients_1 test_switch_merge::test_a_reference_goes_round_a_loop_as_a_reference
    testWhileGrad_IndexedSlices test_forward_parts::test_of_loops[indexed_slices]
    testWhileGrad_SparseTensor test_while::test_parts_of_a_sparse_tensor_whose_values_change
    testWhileAndTensorArray test_forward_parts::test_of_loops[tensor_array]
    testWhileGrad_StopGrad test_forward_parts::test_of_loops[stop]
    testWhileGrad_StopGradInside test_forward_parts::test_of_loops[stop_inside]
    testWhileGrad_StopGradInsideNoShape test_forward_parts::test_of_loops[stop_inside_no_shape]
    testWhileGradGradFail test_forward_parts::test_of_loops[scan]
    testStopGradOnWhileGrad test_forward_parts::test_of_loops[stop_on_gradient]
    testWhileGradientWithNontrainablePath1 test_forward_parts::test_of_loops[non_trainable_1]
    testWhileGradientWithNontrainablePath2 test_forward_parts::test_of_loops[non_trainable_2]
    testIssue16504 test_forward_parts::test_weights_that_are_normalized_until_they_change_no_more
"""

# Each shows that the behaviour is another one, on purpose.
DIFFERS = """
    testCondBool ../test_cond::test_a_python_bool_decides_at_once - refused there
    testFetchable test_cond::test_what_is_alive_inside_can_be_fetched - all refused there
    testCondIndexedSlicesDifferentTypes test_cond::test_indices_of_two_dtypes_are_refused - widened there
    testValidCondContext test_while_nested::test_a_tensor_of_a_branch_is_refused_elsewhere[outside] - passes there
    testValidCondContextBranches test_cond::test_a_tensor_of_one_branch_is_refused_in_the_other - passes there
"""

LEFT_OUT = {
    "gradients, and nothing else of its own": """
        testCondInt
        testCondResourceGradShape
        testCondComputeGradAfterSessRunFails
        testCondGrad_3
        testCondGradMultiDevice
        testNestedCond_Simple
        testWhileGrad_ColocateGradients
        testGradInWhileWrtInitialLoopVal
        testCondGradInNestedWhiles
        testCallGradInLoop
        testStopGradMultiFlows
    """,
    "ragged tensors": """
        testCondRaggedTensor
        testWhileShapeInferenceRaggedTensor
        testWhileShapeInferenceRaggedTensorRaggedRank2
    """,
    "tf.data": """
        testCondSwitchColocatedWithInputWhenInputPlacedOnCPU
    """,
    "what runs on a GPU, or is copied to one": """
        testCondSwitchColocatedWithInputWhenInputOnGPU
        testNestedWhileCondWhileGradGpu
        testGuardedAssertDoesNotCopyWhenTrue
    """,
    "the choice of TensorFlow's single-threaded executor": """
        testDisableLoweringSwitchMerge
    """,
    "gradients in loops that XLA compiles": """
        testXLAGradInLoop
        testSingleNestedMaximumIterationsWhileLoopGradientInXLAContext
        testInvalidMaximumIterationsWhileLoopGradientInXLAContext
        testInvalidMaximumIterationsFromSiblingContextWhileLoopInXLAContext
    """,
    "counts the allocations of TensorFlow's allocator": """
        testBufferForwarding
    """,
    "eager execution": """
        testWhileGrad_EagerResourceVariable
        testSwitchEagerMode
        EagerTest.testCond
        EagerTest.testWhileLoop
        EagerTest.testWhileLoopWithMaxIterations
        EagerTest.testWhileWithMaximumIterationsAndSingleArgument
        EagerTest.testWithDependencies
        EagerTest.testTuple
        EagerTest.testCase
    """,
}
