"""Streams without effects: ranges of keys, segments, epochs, and the records that say how they are.

A stream's *segments* divide the hashes of keys among them; an *epoch* is such a division. The model
is Pravega's (its *Stream Metadata Store*): each change of the division is one more epoch.
"""
