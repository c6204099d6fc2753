"""The documentation, and the code that writes and checks it. It is not part of what users install.

`docs.generate` writes the reference pages that follow from code.
"""
