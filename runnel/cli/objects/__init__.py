"""Commands for objects: apply, get, describe, edit, explain, delete."""
