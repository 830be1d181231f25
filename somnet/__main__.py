"""`python -m somnet`."""

from somnet.cli.main import main

main()
