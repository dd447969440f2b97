"""Ragged tensors: flat values, and row splits for each dimension whose rows differ in length."""
