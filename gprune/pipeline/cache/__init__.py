"""What the cache holds: what takes room, what is damaged, and what can go."""
