"""Where metrics may go beside metrics.jsonl. Each needs an extra of the core."""
