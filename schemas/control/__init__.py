"""Messages between SC and SPU, and assignments for clients."""
