"""Files and logs, and what memory an op may ask for."""
