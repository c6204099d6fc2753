"""Objects that users apply and the KV stores: kinds, fields, keys, manifests."""
