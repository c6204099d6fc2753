"""Commands for records: produce, consume, and named consumers."""
