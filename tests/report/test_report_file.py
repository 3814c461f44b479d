"""A report's file: private, whole, never in the place of another unasked."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kvctl.report.file import ReportFileError, check_target, write_private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_private(path, "page", force=False)
    assert path.read_text() == "page"
    assert mode(path) == 0o600


def test_an_existing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("mine")
    for write in (check_target, lambda p, force: write_private(p, "page", force=force)):
        with pytest.raises(ReportFileError, match=r"exists .*--force"):
            write(path, force=False)
    assert path.read_text() == "mine"


def test_force_replaces_it_and_makes_it_private(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("mine")
    path.chmod(0o644)
    link = tmp_path / "link.html"
    link.symlink_to(path)
    write_private(link, "page", force=True)
    assert link.is_symlink()
    assert path.read_text() == "page"
    assert mode(path) == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.html", "report.html"]


def test_a_device_is_written_to_and_stays(tmp_path: Path) -> None:
    link = tmp_path / "null.html"
    link.symlink_to(os.devnull)
    write_private(link, "page", force=True)
    assert stat.S_ISCHR(link.stat().st_mode)


@pytest.mark.parametrize("force", [True, False])
def test_where_no_file_can_be_it_says_so(tmp_path: Path, force: bool) -> None:
    with pytest.raises(ReportFileError, match="no folder"):
        write_private(tmp_path / "nowhere" / "report.html", "page", force=force)
    with pytest.raises(ReportFileError, match=r"exists|is a folder"):
        write_private(tmp_path, "page", force=force)


def test_a_full_disk_leaves_nothing_behind() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    with pytest.raises(ReportFileError, match="cannot write /dev/full"):
        write_private(full, "page", force=True)
