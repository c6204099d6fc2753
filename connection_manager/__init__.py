"""Persistent SC-SPU connections: sessions, heartbeats, generations, reconnecting.

`guarded_site` bounds who waits at an HTTP port, and `request_turns` has requests take turns.

This package knows the messages, but not what they mean to the controller or to an SPU.
"""
