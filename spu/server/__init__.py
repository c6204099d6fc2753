"""The public port: connections of clients, their requests and subscriptions."""
