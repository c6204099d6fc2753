"""Objects over the SC's REST API: list, apply, watch, wait."""
