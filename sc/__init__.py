"""The streaming controller: objects in a KV, reconciled by pure controllers."""
