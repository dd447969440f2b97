"""The builder: functions that add nodes to the current graph."""
