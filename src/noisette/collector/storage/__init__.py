"""What the collector keeps: one seam, behind which SQLite or PostgreSQL live."""
