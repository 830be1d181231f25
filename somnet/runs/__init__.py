"""A run: trained, scored, kept on disk, used."""
