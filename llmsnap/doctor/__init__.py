"""What this machine can do for llmsnap, what is in the way, and the remedy. Nothing is changed."""
