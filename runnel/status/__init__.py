"""What a cluster looks like now, live: for `runnel top` and for dashboards."""
