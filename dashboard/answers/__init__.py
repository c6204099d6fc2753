"""What browsers ask for once: objects, segments, records, consumers, events, logs."""
