"""Tests of real faults and long runs."""
