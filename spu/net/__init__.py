"""Connections between SPUs."""
