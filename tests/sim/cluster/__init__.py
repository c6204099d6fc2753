"""A cluster in virtual time: real replicas and real controllers; all around them is simulated.

`world.run(seed)` is one life of a cluster: three to five SPUs, an SC, a few partitions, clients,
faults for some virtual time, then a healing. Everything that is not decided by the real cores is
decided by one `random.Random(seed)`, so that a seed is all that it takes to see a life again.

| module | plays the part of |
|---|---|
| `layout` | which SPUs and partitions there are |
| `clock` | time: a heap of what happens next |
| `network` | connections between SPUs: delays, losses, cuts |
| `disk` | what an SPU has written, and what of it is left after a crash |
| `spu`, `replica` | an SPU's process around `spu.replication.core.step` |
| `kv` | the KV store: revisions, compare-and-swap, office |
| `sc` | an SC around `sc.controllers` and the real dispatcher |
| `clients` | producers and consumers |
| `faults` | what goes wrong |
| `ledger` | what must never be; it depends on nothing of the above |
| `world` | all of it together |
| `mutants` | deliberate bugs |
"""
