"""Measures a running cluster from here: the implementation of ``runnel bench``.

- `runnel.bench.settings` (pure): what to measure.
- `runnel.bench.schedule` (pure): when records are due, and how many are still to be sent.
- `runnel.bench.latency` (pure): percentiles of latencies.
- `runnel.bench.result` (pure): the figures, their ratios to the floor, and what limits them.
- `runnel.bench.floor`: what the machine can do at most, measured in the same run.
- `runnel.bench.cpu`: processor time of the client and of daemons on this host.
- `runnel.bench.payload`: records to send.
- `runnel.bench.topics`: a topic for the run, deleted afterwards.
- `runnel.bench.workloads`: produce, consume and end to end.
- `runnel.bench.arrivals`: what a consumer has received, and how late.
- `runnel.bench.running`: all of it in the right order.

Everything is measured through the library's blocking client, as a user's program would use it.
"""
