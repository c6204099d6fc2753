"""What a record is: columns, rows and Arrow. Pure; knows `schemas` only."""
