"""Columns of typed topics: types, versions, allowed changes."""
