"""Full graph + feeds + fetches + targets -> ClientGraph."""
