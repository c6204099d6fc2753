"""What browsers see change: tables of rows, and the stream that keeps them up to date."""
