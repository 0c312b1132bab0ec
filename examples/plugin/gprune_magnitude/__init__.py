"""Weight magnitude as an importance metric, and a pruning method that ranks units by it."""
