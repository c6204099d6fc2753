"""Persistent SC-SPU connections: sessions, heartbeats, generations, reconnecting.

Knows messages, and nothing of what they mean to the controller or to an SPU.
"""
