"""TensorFlow's checkpoint format: an index of tensors by name, and shards with their bytes."""
