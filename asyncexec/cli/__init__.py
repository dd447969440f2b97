"""The command ``asyncexec``: one module a verb, put together in ``app.py``, entered by ``main.py``."""
