"""Manifests: YAML with line numbers, validation, errors that name the field."""
