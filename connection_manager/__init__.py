"""Persistent SC-SPU connections: sessions, heartbeats, generations, reconnecting.

This package knows the messages, but not what they mean to the controller or to an SPU.
"""
