"""What is shown of a run: pictures and pages."""
