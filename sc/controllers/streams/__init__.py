"""The stream controller: from requests and records to partitions. Pure.

`controller` looks at one stream; `states` says which moves a stream can make; `records` are what
is stored; the other modules are a workflow each. A workflow is a row of steps. Each step is one
transaction that compares the stream's state record and writes it: so steps of two SCs that believe
to lead never interleave, and after a crash the next one goes on where the records say. Between
steps a workflow waits for facts that stay true, such as that a partition is sealed.
"""
