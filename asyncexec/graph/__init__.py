"""Graphs of ops: nodes and edges, made node by node or from a GraphDef, with dtypes and shapes inferred."""
