"""What a stream keeps: cuts of its end from time to time, and the choice among them. Pure."""
