"""Records of data: Examples, SequenceExamples, and tensors as TensorProtos."""
