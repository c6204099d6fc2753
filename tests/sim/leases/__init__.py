"""Several SCs over one KV, in virtual time: leases, clocks that differ, processes that stop.

The real `sc.election.node.Node` with its keeper, its turns and `sc.leadership` runs in an event
loop of its own for each SC (`tests.sim.leases.loops`). A KV in memory counts leases by its clock
(`tests.sim.leases.network`). What an SC does while it leads is played: it writes, again and again,
as `sc.controller` does. `tests.sim.leases.world` has the faults and the invariants.
"""
