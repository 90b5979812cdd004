"""The command line.

In: the words after `tcm`. Out: a call of the library and an exit code. Start with `app.py`; no other package knows that
there is a command line.
"""
