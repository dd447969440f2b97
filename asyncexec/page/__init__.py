"""What pages are made of: graphs as data, and the files that browsers get."""
