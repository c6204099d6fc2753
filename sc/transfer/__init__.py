"""What is in a store of a cluster, carried elsewhere: to another store, into a file and back.

::

    contents.py     what a store holds of a cluster
    copying.py      writing it into a store, under a mark that keeps SCs away
    migration.py    from one store to another
    backup_file.py  the file of a backup
    backup.py       from a store into a file
    restore.py      from a file into a store
"""
