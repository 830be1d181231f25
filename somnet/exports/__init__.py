"""Networks and labels for other programs."""
