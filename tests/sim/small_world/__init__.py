"""A small world for exhaustive exploration: every order of events that can be, one at a time.

One partition on a few SPUs. Messages are a set that only grows, so that each is delivered late,
often, or never. Disks lose what is not synced when an SPU crashes. The SC suspects whom it likes:
it elects any member of the live replica set and drops any other, as long as the rules of its own
compare-and-swap hold. Where replicas move, the real controllers decide as well. Promises and cuts
are durable at once, or, in a ``slow`` world, whenever it pleases the disk.

| module | what |
|---|---|
| `world` | what there is, what one input to a replica leads to, and what must never be |
| `moves` | what may happen next, faults and the SC's decisions included |
| `membership` | replicas that move: what the real SC hears and decides, and what SPUs do |
| `corners` | small worlds in the middle of a story, small enough to try everything from there on |
| `moving_corners` | the same in the middle of a move |
| `healing` | what a world comes to once nothing goes wrong any more |
"""
