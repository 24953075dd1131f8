"""`python -m holdfast` is the `holdfast` command."""

from holdfast.app import main

main()
