"""What the SC tells Prometheus: definitions of its metrics, and the instruments that count."""
