"""What outlives a kernel call: variables, tables, queues, stacks, arrays and lists of tensors."""
