"""One module for each kind of reference page that follows from code.

Each has a function ``pages()``: the texts by their path below ``docs/reference``. `docs.generate`
lists the modules, writes what they give and finds what is stale.
"""
