"""`python -m somnet`."""

from somnet.cli import main

main()
