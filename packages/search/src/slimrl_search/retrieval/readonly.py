"""The module makes an index on a read-only file system usable, as in a container: Chroma must write to its database.

So it copies only the database to a temporary directory, without its free pages. The copy takes 0.6 KB a title; the
original database takes 2.6 KB, and the whole index 4.3 KB. The vectors are linked: Chroma opens their files for writing
too, but accepts a refusal.
"""

import atexit
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from slimrl.errors import UserError
from slimrl_search.retrieval.index import ABOUT, DATABASE, whole_in

ROOM_BYTES = 64 * 2**20  # kept free for Chroma's journal and for the files of programs in the sandbox


def writable(index: Path) -> Path:
    """Return the index itself if it is writable, else a copy that exists until this process exits.

    Raises:
        UserError: if the copy would not fit, before anything is written; or if the index cannot be read.
    """
    place = whole_in(index)
    if place is None or os.access(place, os.W_OK):
        return index
    copy = Path(tempfile.mkdtemp(prefix="slimrl-index-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    titles = copy / place.name
    try:
        titles.mkdir()
        shutil.copy(index / ABOUT, copy / ABOUT)
        for other in place.iterdir():
            if other.name != DATABASE:
                (titles / other.name).symlink_to(other.resolve())
        with closing(sqlite3.connect(f"{(place / DATABASE).resolve().as_uri()}?mode=ro", uri=True)) as database:
            names = ("page_count", "freelist_count", "page_size")
            num_pages, num_free, page_bytes = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
            needed, there = (num_pages - num_free) * page_bytes + ROOM_BYTES, shutil.disk_usage(copy).free
            if there < needed:
                raise UserError(
                    f"the index in {index} cannot be written to, as Chroma wants, and a copy in {copy.parent} needs "
                    f"{needed // 2**20} MB, of which {there // 2**20} are free. In the container raise "
                    "DOCKER_TMP_LIMIT (it counts towards DOCKER_MEMORY_LIMIT); elsewhere set TMPDIR to a larger disk, "
                    "or let this user write there."
                )
            # VACUUM INTO leaves out the free pages, which a copy of the file would include.
            database.execute("VACUUM INTO ?", (str(titles / DATABASE),))
    except (OSError, sqlite3.Error) as error:
        raise UserError(
            f"the index in {index} cannot be copied to {copy}: {error}. Is it whole, and may this user read all of it?"
        ) from error
    return copy
