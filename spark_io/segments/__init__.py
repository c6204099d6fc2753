"""Streams of Runnel: from one cut to another, segment by segment."""
