"""ClientGraph -> GraphView: what every step of a signature shares."""
