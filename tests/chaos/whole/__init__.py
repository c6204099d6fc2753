"""Everything at once: a cluster on five hosts, all kinds of faults drawn from a seed, clients that
write down what they were told, and a check of all that in the end.

    make chaos MINUTES=2 SEED=1

``plan``, ``values``, ``history``, ``checker``, ``progress``, ``daemons`` and ``report`` are pure;
the others act.
"""
