"""Small programs that tests start as children, each with one habit. Standard library only."""
