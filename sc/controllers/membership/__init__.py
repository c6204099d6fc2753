"""Replicas move: from a wish for other replicas to SPUs that hold them, in steps that lose nothing.

A move is a change of a partition's spec: ``replicas`` says at once who is to hold it in the end,
``joining`` which of these have not caught up yet, ``leaving`` who else still holds it. These three
are all that is remembered of a move: who takes over goes on from there, and a wish for other
replicas in the middle of a move just changes them again.

`steps` says what is next for one partition, `begin` makes the spec with which a move begins,
`budget` how many may move at once, `drain` and `resize` who asks for moves: an SPU that is to be
empty, and a topic that wants other replicas.
"""
