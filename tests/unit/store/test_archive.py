"""An archive brings workspaces back as they were, and whatever else it holds reaches nothing."""

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from holdfast.domain.errors import BadBackup
from holdfast.store import archive

ONE, TWO = "s_0000000000000001", "s_0000000000000002"


def ignore_progress(done: int, total: int) -> None:
    """No one watches."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The workspaces to pack."""
    folder = tmp_path / "source"
    (folder / ONE).mkdir(parents=True)
    return folder


def pack(tmp_path: Path, source: Path) -> list[str]:
    (tmp_path / "copy.db").write_bytes(b"the store")
    return archive.pack(tmp_path / "all.tar", tmp_path / "copy.db", source, ignore_progress)


def unpack(tmp_path: Path, name: str = "target") -> tuple[Path, list[str]]:
    """Unpack; return the folder of the workspaces, and what was left out."""
    target = tmp_path / name
    target.mkdir()
    return target / "workspaces", archive.unpack(tmp_path / "all.tar", target, ignore_progress)


def forge_archive(tmp_path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> None:
    """An archive that `pack` did not write: the store, a workspace with a folder in it, and `entries`."""
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        tar.addfile(tar_entry("holdfast.db"))
        tar.addfile(tar_entry(f"workspaces/{ONE}", tarfile.DIRTYPE))
        tar.addfile(tar_entry(f"workspaces/{ONE}/inner", tarfile.DIRTYPE))
        for each, content in entries:
            each.size = len(content)
            tar.addfile(each, io.BytesIO(content))


def tar_entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, target, 0o644
    return made


def test_files_folders_links_rights_and_times_come_back(tmp_path: Path, source: Path) -> None:
    own = source / ONE
    (own / "deep" / "empty").mkdir(parents=True)
    (own / "run.sh").write_text("#!/bin/sh\n")
    (own / "run.sh").chmod(0o4755)
    (own / "deep" / "big").write_bytes(os.urandom(archive.CHUNK_BYTES + 7))
    (own / "deep" / ("long" * 40)).write_text("long name")
    odd = os.fsdecode(b"not utf-8 \xff\x1b[31m\n")
    (own / odd).write_text("odd name")
    (own / "nothing").touch()
    (own / "deep" / "up").symlink_to("../run.sh")
    (own / "dangling").symlink_to("nowhere")
    os.utime(own / "run.sh", (1, 1_000_000_000))
    (own / "deep").chmod(0o555)
    assert pack(tmp_path, source) == []
    assert stat.S_IMODE((tmp_path / "all.tar").stat().st_mode) == 0o600
    assert not list(tmp_path.glob(".*.part"))
    found, left_out = unpack(tmp_path)
    assert left_out == []
    back = found / ONE
    for path in (own, *own.rglob("*")):
        other = back / path.relative_to(own)
        assert path.is_symlink() == other.is_symlink() and path.is_dir() == other.is_dir()
        if path.is_symlink():
            assert path.readlink() == other.readlink()
            continue
        assert other.stat().st_mode & 0o7777 == path.stat().st_mode & 0o777, "never a right of its owner's"
        assert other.stat().st_mtime == pytest.approx(path.stat().st_mtime)
        if path.is_file():
            assert other.read_bytes() == path.read_bytes()
    assert len(list(back.rglob("*"))) == len(list(own.rglob("*")))
    assert (found.parent / "holdfast.db").read_bytes() == b"the store"


def test_only_workspaces_are_packed(tmp_path: Path, source: Path) -> None:
    for name in (TWO, f"{TWO}.removed", "mine"):
        (source / name).mkdir()
    (source / "file").touch()
    assert pack(tmp_path, source) == []
    found, _ = unpack(tmp_path)
    assert sorted(path.name for path in found.iterdir()) == [ONE, TWO]


def test_without_any_workspaces_there_is_still_the_store(tmp_path: Path) -> None:
    assert pack(tmp_path, tmp_path / "nowhere") == []
    found, _ = unpack(tmp_path)
    assert list(found.iterdir()) == [] and (found.parent / "holdfast.db").exists()


def test_no_link_is_followed_when_files_are_packed(tmp_path: Path, source: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("do not copy me")
    (source / ONE / "folder").symlink_to(secret)
    (source / ONE / "file").symlink_to(secret / "key")
    (source / TWO).symlink_to(secret)
    (line,) = pack(tmp_path, source)
    assert line.startswith(f"workspaces/{TWO}: ")
    assert b"do not copy me" not in (tmp_path / "all.tar").read_bytes()


def test_what_is_no_file_is_left_out_and_named(tmp_path: Path, source: Path) -> None:
    os.mkfifo(source / ONE / "pipe\x1b[31m")
    (source / ONE / "file").touch()
    (line,) = pack(tmp_path, source)
    assert line == f"workspaces/{ONE}/pipe�[31m: it is neither a file nor a folder nor a link"
    found, _ = unpack(tmp_path)
    assert [path.name for path in (found / ONE).iterdir()] == ["file"]


def test_what_lies_too_deep_is_left_out_and_named(tmp_path: Path, source: Path) -> None:
    deep = source.joinpath(ONE, *["d"] * archive.PARTS_MAX)
    deep.mkdir(parents=True)
    (line,) = pack(tmp_path, source)
    assert line.endswith("/d: it lies too deep")
    unpack(tmp_path)


def test_a_file_that_shrinks_during_packing_does_not_corrupt_the_archive(
    tmp_path: Path, source: Path
) -> None:
    shrinking, after = source / ONE / "a log", source / ONE / "b"
    shrinking.write_bytes(b"x" * (3 * archive.CHUNK_BYTES))
    after.write_text("whole")
    (tmp_path / "copy.db").write_bytes(b"the store")
    calls: list[int] = []

    def shrink(done: int, total: int) -> None:
        calls.append(done)
        # The entries of the store, its content, the workspace, the file; then its first piece.
        if len(calls) == 5:
            os.truncate(shrinking, 10)

    (line,) = archive.pack(tmp_path / "all.tar", tmp_path / "copy.db", source, shrink)
    assert line.startswith(f"workspaces/{ONE}/a log: it could not be read to the end")
    found, _ = unpack(tmp_path)
    content = (found / ONE / "a log").read_bytes()
    assert len(content) == 3 * archive.CHUNK_BYTES and content.startswith(b"x" * archive.CHUNK_BYTES)
    assert content.endswith(b"\0" * archive.CHUNK_BYTES)
    assert (found / ONE / "b").read_text() == "whole"


def test_packing_that_is_stopped_leaves_nothing_and_the_archive_before_it(
    tmp_path: Path, source: Path
) -> None:
    pack(tmp_path, source)
    before = (tmp_path / "all.tar").read_bytes()

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archive.pack(tmp_path / "all.tar", tmp_path / "copy.db", source, stop)
    assert (tmp_path / "all.tar").read_bytes() == before
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize("target", ["/etc/passwd", "../..", "../../x", "inner/../../../x", "inner/.."])
def test_a_link_out_of_its_workspace_is_left_out_and_named(tmp_path: Path, target: str) -> None:
    forge_archive(tmp_path, (tar_entry(f"workspaces/{ONE}/inner/link", tarfile.SYMTYPE, target), b""))
    found, (line,) = unpack(tmp_path)
    assert line == f"workspaces/{ONE}/inner/link: this link to {target} may lead out of its folder"
    assert list((found / ONE / "inner").iterdir()) == []


def test_links_that_stay_in_their_workspace_come_back(tmp_path: Path) -> None:
    targets = ("..", "../inner", "./x//y", "x")
    forge_archive(
        tmp_path,
        *(
            (tar_entry(f"workspaces/{ONE}/inner/{n}", tarfile.SYMTYPE, to), b"")
            for n, to in enumerate(targets)
        ),
    )
    found, left_out = unpack(tmp_path)
    assert left_out == []
    inner = found / ONE / "inner"
    assert [str((inner / str(n)).readlink()) for n in range(4)] == ["..", "../inner", "x/y", "x"]
    assert all(path.resolve().is_relative_to(found / ONE) for path in inner.iterdir())


HOSTILE = {
    "an absolute name": [tar_entry("/tmp/evil")],
    "a way up": [tar_entry(f"workspaces/{ONE}/../../evil")],
    "a way up at the end": [tar_entry(f"workspaces/{ONE}/..", tarfile.DIRTYPE)],
    "a way up as a workspace": [tar_entry("workspaces/..", tarfile.DIRTYPE)],
    "a name in no workspace": [tar_entry("evil")],
    "a name that is no conversation's": [tar_entry("workspaces/evil", tarfile.DIRTYPE)],
    "a file in the place of a workspace": [tar_entry(f"workspaces/{TWO}")],
    "a link in the place of a workspace": [tar_entry(f"workspaces/{TWO}", tarfile.SYMTYPE, "/etc")],
    "a folder that was not made": [tar_entry(f"workspaces/{ONE}/missing/evil")],
    "a file in the place of the workspaces": [tar_entry("workspaces")],
    "a file through a link": [
        tar_entry(f"workspaces/{ONE}/link", tarfile.SYMTYPE, "/tmp"),
        tar_entry(f"workspaces/{ONE}/link/evil"),
    ],
    "a folder through a link": [
        tar_entry(f"workspaces/{ONE}/link", tarfile.SYMTYPE, "inner"),
        tar_entry(f"workspaces/{ONE}/link/evil", tarfile.DIRTYPE),
    ],
    "a link through a link": [
        tar_entry(f"workspaces/{ONE}/link", tarfile.SYMTYPE, "inner"),
        tar_entry(f"workspaces/{ONE}/link/evil", tarfile.SYMTYPE, "x"),
    ],
    "a file after a link of its name": [
        tar_entry(f"workspaces/{ONE}/link", tarfile.SYMTYPE, "/tmp/evil"),
        tar_entry(f"workspaces/{ONE}/link"),
    ],
    "a link after a file of its name": [
        tar_entry(f"workspaces/{ONE}/file"), tar_entry(f"workspaces/{ONE}/file", tarfile.SYMTYPE, "x"),
    ],
    "a file twice": [tar_entry(f"workspaces/{ONE}/file"), tar_entry(f"workspaces/{ONE}/file")],
    "a second store": [tar_entry("holdfast.db")],
    "a hard link": [tar_entry(f"workspaces/{ONE}/link", tarfile.LNKTYPE, "/etc/passwd")],
    "a hard link to the store": [tar_entry(f"workspaces/{ONE}/link", tarfile.LNKTYPE, "holdfast.db")],
    "a device": [tar_entry(f"workspaces/{ONE}/null", tarfile.CHRTYPE)],
    "a pipe": [tar_entry(f"workspaces/{ONE}/pipe", tarfile.FIFOTYPE)],
    "a name with a zero": [tar_entry(f"workspaces/{ONE}/a\0b" + "x" * 120)],
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_crafted_archive_is_refused_and_writes_nothing_outside(tmp_path: Path, what: str) -> None:
    forge_archive(tmp_path, *((each, b"evil" if each.isreg() else b"") for each in HOSTILE[what]))
    with pytest.raises(BadBackup) as refused:
        unpack(tmp_path)
    assert str(tmp_path / "all.tar") in str(refused.value) and refused.value.advice
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.tar", "target"]
    assert [path for path in (Path("/tmp/evil"), *tmp_path.rglob("evil")) if path.exists()] == []


def test_special_permission_bits_are_not_restored(tmp_path: Path) -> None:
    special = tar_entry(f"workspaces/{ONE}/special")
    special.mode = 0o6777
    forge_archive(tmp_path, (special, b""))
    found, _ = unpack(tmp_path)
    assert stat.S_IMODE((found / ONE / "special").stat().st_mode) == 0o777


def test_an_archive_entry_with_an_invalid_time_is_refused(tmp_path: Path) -> None:
    timeless = tar_entry(f"workspaces/{ONE}/timeless")
    timeless.pax_headers = {"mtime": "inf"}
    forge_archive(tmp_path, (timeless, b""))
    with pytest.raises(BadBackup):
        unpack(tmp_path)


def test_an_archive_that_is_cut_short_anywhere_is_refused(tmp_path: Path, source: Path) -> None:
    for n in range(3):
        (source / ONE / str(n)).write_bytes(bytes(2_000))
    pack(tmp_path, source)
    whole = (tmp_path / "all.tar").read_bytes()
    for end in (*range(512, len(whole), 512), 700, 3_333, len(whole) - 1):
        (tmp_path / "all.tar").write_bytes(whole[:end])
        with pytest.raises(BadBackup):
            unpack(tmp_path, f"target {end}")


def test_an_archive_that_is_garbled_is_refused(tmp_path: Path, source: Path) -> None:
    for n in range(5):
        (source / ONE / str(n)).touch()
    pack(tmp_path, source)
    whole = bytearray((tmp_path / "all.tar").read_bytes())
    at = len(whole) - 1024 - 512  # The entry of the last file.
    whole[at : at + 512] = b"\x07" * 512
    (tmp_path / "all.tar").write_bytes(whole)
    with pytest.raises(BadBackup):
        unpack(tmp_path)


def test_other_programs_can_read_and_repack_it(tmp_path: Path, source: Path) -> None:
    (source / ONE / "notes.txt").write_text("mine")
    pack(tmp_path, source)
    with tarfile.open(tmp_path / "all.tar") as tar:
        assert tar.getnames() == ["holdfast.db", f"workspaces/{ONE}", f"workspaces/{ONE}/notes.txt"]
        entries = [(each, tar.extractfile(each)) for each in tar.getmembers()]
        with tarfile.open(tmp_path / "again.tar", "w") as again:
            for each, content in entries:
                again.addfile(each, content)
    (tmp_path / "again.tar").replace(tmp_path / "all.tar")
    found, left_out = unpack(tmp_path)
    assert left_out == [] and (found / ONE / "notes.txt").read_text() == "mine"


def test_two_backups_to_one_file_at_once_leave_a_whole_one(tmp_path: Path, source: Path) -> None:
    (source / ONE / "notes").write_text("mine")
    (tmp_path / "copy.db").write_bytes(b"the store")
    begun: list[int] = []

    def begin_another(done: int, total: int) -> None:
        if not begun:
            begun.append(done)
            pack(tmp_path, source)

    archive.pack(tmp_path / "all.tar", tmp_path / "copy.db", source, begin_another)
    found, left_out = unpack(tmp_path)
    assert begun and left_out == [] and (found / ONE / "notes").read_text() == "mine"


def test_a_workspace_renamed_during_packing_is_archived(tmp_path: Path, source: Path) -> None:
    (source / ONE / "notes").write_text("mine")
    (tmp_path / "copy.db").write_bytes(b"the store")

    def move_on(done: int, total: int) -> None:
        if (source / ONE).exists():
            (source / ONE).rename(source / TWO)

    archive.pack(tmp_path / "all.tar", tmp_path / "copy.db", source, move_on)
    found, _ = unpack(tmp_path)
    assert (found / TWO / "notes").read_text() == "mine"
