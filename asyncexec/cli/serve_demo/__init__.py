"""``asyncexec serve --demo``: three models with some load of their own, for the live page to show."""
