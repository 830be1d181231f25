"""What touches the machine: files, cores, processes, signals, ranks."""
