"""Which of several SCs leads: leases, who runs, and whose turn it is.

::

    lease_clock.py   pure: until when a holder may rely on its lease
    turns.py         pure: when an SC may stand for election
    names.py         that no two SCs have one name
    keeper.py        takes a lease and renews it
    office.py        what this process tells of who leads, with rivals or without
    node.py          one SC among several: stands by, leads, and stands by again
"""
