"""What an SPU tells Prometheus: definitions of its metrics, and the collectors that read them."""
