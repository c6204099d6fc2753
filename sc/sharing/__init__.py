"""SCs that run over one KV share the work for streams; the one that leads keeps all other work.

A stream's bucket follows from its uid, and each bucket is worked for by one SC. `wanted` says which
one it should be, `claims` takes and gives back buckets in the KV, and `worker` does what the
controllers of streams ask for on an SC that does not lead. Only the leader has sessions with SPUs:
it tells the others what their decisions need of that (`telling`, `facts_port`), and they listen
(`listening`).
`sharer` puts the parts of one SC together.

An SC that works for a bucket which is no longer its own does no harm: each step of a workflow
compares the records that it was decided from. The claims keep two SCs from doing the same work.
"""
