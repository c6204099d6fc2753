"""``runnel group``: groups of readers that share streams and topics."""
