"""One loop for every method and phase, with exact checkpoints."""
