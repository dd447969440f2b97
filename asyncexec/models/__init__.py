"""Models in files, of any format: the graph, what it takes and gives by name, and what makes it ready to run."""
