"""From the scores of a run to a cleaned copy of its data."""
