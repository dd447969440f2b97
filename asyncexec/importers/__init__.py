"""Files -> GraphDef."""
