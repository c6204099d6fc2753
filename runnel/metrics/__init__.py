"""Metrics of clients for Prometheus."""
