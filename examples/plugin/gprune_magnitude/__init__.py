"""Weight magnitude as an importance metric, and one method that decides by it."""
