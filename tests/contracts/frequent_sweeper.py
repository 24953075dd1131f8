"""`holdfast` with a server that sweeps many times a second; all else is as it is.

python tests/contracts/frequent_sweeper.py serve …
"""

from holdfast.app import main
from holdfast.cli import run_server

if __name__ == "__main__":
    run_server.SWEEP_EVERY_S = 0.05
    main()
