"""All replicas of this SPU: open, assign, delete, recover."""
