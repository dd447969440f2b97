"""Random calls of single ops, here and in an installed TensorFlow: ``python -m tests.oracle.differences``.

A case is drawn by its op and a number, so that both sides draw the same.  It starts from one of the cases of the golden
answers (``tests/ops/cases``), which is mutated, or from a generator of the op's own (``generators.py``).
"""
