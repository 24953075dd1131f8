"""`python -m holdfast` is the `holdfast` command."""

from holdfast.main import main

main()
