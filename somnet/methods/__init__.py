"""Ways to learn from noisy images, all behind one contract."""
