"""The live page: what the models do at this moment, for people."""
