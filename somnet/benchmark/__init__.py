"""Methods compared on the same data, and the demo."""
