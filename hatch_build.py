"""Build the page when a wheel is built, so that `pip install .` gives a server with its page."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent / "tools"))

import page


class PageBuildHook(BuildHookInterface):
    """Run by hatchling before it collects files; `artifacts` in pyproject.toml has it take the built page."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        page.build()
