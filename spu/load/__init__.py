"""How much a leader is asked to take, and whether its segment should be split or merged. Pure."""
