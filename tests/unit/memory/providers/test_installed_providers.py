"""Memory providers that were installed: found by name, loaded when they are chosen, refused in words."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.memory.ports import OwnerGone
from holdfast.memory.providers.installed import (
    BadMemoryProvider,
    NoSuchMemoryProvider,
    installed_names,
    open_installed_provider,
)
from tests.support.fake_installed_package import install
from tests.support.source_files import ROOT

EXAMPLE = (ROOT / "docs/examples/memory_provider.py").read_text("utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that packages are installed in."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    # What a test imports is gone after it.
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    return folder


async def refusal_of(name: str, folder: Path, wait_s: float = 30) -> BadMemoryProvider:
    with pytest.raises(BadMemoryProvider) as caught:
        await open_installed_provider(name, folder, {}, None, timeout_s=wait_s)
    assert isinstance(caught.value, OwnerGone) and caught.value.advice
    assert str(caught.value).startswith(f"The installed memory {name} cannot be used: ")
    return caught.value


def test_names_are_listed_and_nothing_is_imported(site: Path) -> None:
    entries = {"shelf": "hf_shelf:make", "bomb": "hf_bomb:make"}
    install(site, "hf_two", entries, {"hf_shelf": EXAMPLE, "hf_bomb": "raise SystemExit('imported')"})
    assert {"bomb", "shelf"} <= set(installed_names()) and installed_names() == sorted(installed_names())
    assert not {"hf_shelf", "hf_bomb"} & set(sys.modules)


async def test_only_the_chosen_provider_is_imported(site: Path, tmp_path: Path) -> None:
    entries = {"shelf": "hf_shelf:make", "bomb": "hf_bomb:make"}
    install(site, "hf_two", entries, {"hf_shelf": EXAMPLE, "hf_bomb": "raise SystemExit('imported')"})
    provider = await open_installed_provider("shelf", tmp_path, {}, None)
    assert (provider.name, provider.takes_key) == ("shelf", True)
    assert (await provider.health()).ok
    assert "hf_shelf" in sys.modules and "hf_bomb" not in sys.modules
    own = tmp_path / "memory" / "shelf"
    assert own.is_dir() and stat.S_IMODE(own.stat().st_mode) == 0o700


@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_a_provider_receives_its_folder_options_and_model(
    site: Path, tmp_path: Path, kind: str
) -> None:
    note = f"\n\n{kind} make_it(given):\n    shelf = make(given)\n    shelf.given = given\n    return shelf\n"
    install(site, "hf_one", {"shelf": "hf_noting:make_it"}, {"hf_noting": EXAMPLE + note})

    async def ask(instructions: str, text: str) -> str:
        return instructions + text

    provider = await open_installed_provider("shelf", tmp_path, {"colour": "blue"}, ask)
    given = provider.given  # type: ignore[attr-defined]
    assert given.folder == tmp_path / "memory" / "shelf"
    assert given.options == {"colour": "blue"}
    assert await given.ask("a", "b") == "ab"


async def test_an_unknown_provider_error_lists_the_installed_ones(site: Path, tmp_path: Path) -> None:
    install(site, "hf_one", {"shelf": "hf_shelf:make"}, {"hf_shelf": EXAMPLE})
    with pytest.raises(
        NoSuchMemoryProvider, match=r"no memory named attic: there are notes, webhook, .*shelf"
    ) as caught:
        await open_installed_provider("attic", tmp_path, {}, None, ("notes", "webhook"))
    assert isinstance(caught.value, OwnerGone) and caught.value.advice
    assert not (tmp_path / "memory").exists()


@pytest.mark.parametrize(
    "value, text, why",
    [
        ("hf_absent:make", "", "ModuleNotFoundError: No module named 'hf_absent'"),
        ("hf_bad:make", "", "AttributeError"),
        ("hf_bad:make", "def make(", "SyntaxError"),
        ("hf_bad:make", "raise RuntimeError('no\\nluck.')", "RuntimeError: no luck"),
        ("hf_bad:make", "raise SystemExit(3)", "SystemExit: 3"),
        ("hf_bad:make", "make = 7", "hf_bad:make cannot be called"),
        ("hf_bad:make", "def make(): pass", "TypeError"),
        ("hf_bad:make", "def make(given): raise KeyError('option')", "KeyError: 'option'"),
        ("hf_bad:make", "async def make(given): raise TimeoutError('its own')", "TimeoutError: its own"),
        ("hf_bad:make", "def make(given): return None", "NoneType has no recall, commit, retract"),
        ("hf_bad:make", "def make(given): raise ValueError('x' * 9000)", "ValueError: xxx"),
    ],
)
async def test_an_unusable_provider_is_refused_with_a_reason(
    site: Path, tmp_path: Path, value: str, text: str, why: str
) -> None:
    install(site, "hf_one", {"bad": value}, {"hf_bad": text})
    refusal = await refusal_of("bad", tmp_path)
    assert str(refusal).removeprefix("The installed memory bad cannot be used: ").startswith(why)
    assert len(str(refusal)) < 400 and "\n" not in str(refusal)


async def test_a_missing_provider_method_is_named(site: Path, tmp_path: Path) -> None:
    less = EXAMPLE + "\n\ndel Shelf.retract, Shelf.takes_key\n"
    install(site, "hf_one", {"less": "hf_less:make"}, {"hf_less": less})
    assert str(await refusal_of("less", tmp_path)).endswith("Shelf has no retract, takes_key.")


async def test_two_packages_with_the_same_provider_name_are_refused(site: Path, tmp_path: Path) -> None:
    install(site, "hf_one", {"shelf": "hf_shelf:make"}, {"hf_shelf": EXAMPLE})
    install(site, "hf_two", {"shelf": "hf_other:make"}, {"hf_other": EXAMPLE})
    assert str(await refusal_of("shelf", tmp_path)).endswith("2 packages have one of that name.")


async def test_opening_a_provider_times_out(site: Path, tmp_path: Path) -> None:
    text = "import asyncio\nasync def make(given):\n    await asyncio.Event().wait()\n"
    install(site, "hf_one", {"slow": "hf_slow:make"}, {"hf_slow": text})
    assert str(await refusal_of("slow", tmp_path, 0.2)).endswith("it was not ready within 0.2 s.")


def test_a_hanging_import_does_not_block_shutdown(tmp_path: Path) -> None:
    text = "import threading\nthreading.Event().wait()\n"
    site = install(tmp_path / "site", "hf_one", {"stuck": "hf_stuck:make"}, {"hf_stuck": text})
    script = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from holdfast.memory.providers.installed import BadMemoryProvider, open_installed_provider\n"
        "try:\n"
        "    asyncio.run(open_installed_provider('stuck', Path(sys.argv[1]), {}, None, timeout_s=0.2))\n"
        "except BadMemoryProvider as error:\n    print(error)\n"
    )
    environ = {**os.environ, "PYTHONPATH": f"{site}:{ROOT / 'src'}"}
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip().endswith("it was not loaded within 0.2 s.")
