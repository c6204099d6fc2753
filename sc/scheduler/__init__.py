"""Where replicas go: pure placement."""
