"""Files of lines, and files that are replaced: what a kill, a full disk or another program leaves of them."""

import errno
import json
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.io.files import LineFile, encode_line, explain_write_errors, read_lines, replace_file


def test_lines_are_readable_before_the_file_is_closed(tmp_path):
    file = LineFile(tmp_path / "new" / "a.jsonl")
    file.append({"step": 0, "text": "née\n"})
    assert read_lines(file.path) == [{"step": 0, "text": "née\n"}]
    file.close()
    file.close()
    assert json.loads(encode_line({"text": "lone \udc80 surrogate"})) == {"text": "lone \udc80 surrogate"}


@pytest.mark.parametrize("tail", ['{"step": 1, "x"', "17", "\0\0\0\0", '{"step": 1, "x": "\\'])
def test_torn_last_line_is_left_out(tmp_path, tail):
    (tmp_path / "a.jsonl").write_text('{"step": 0}\n' + tail)
    assert read_lines(tmp_path / "a.jsonl") == [{"step": 0}]


def test_broken_line_in_the_middle_and_a_missing_file_are_named(tmp_path):
    with pytest.raises(UserError, match=r"a\.jsonl cannot be read"):
        read_lines(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_text('{"step": 0}\n{"st\n{"step": 2}\n')
    with pytest.raises(UserError, match=r"a\.jsonl:2"):
        read_lines(tmp_path / "a.jsonl")


def test_a_place_that_cannot_be_written_says_what_to_do(tmp_path):
    file = LineFile(Path("/dev/full"))
    with pytest.raises(UserError, match=r"disk is full: /dev/full .* Free some space .* --resume"):
        file.append({"step": 0})
    file.close()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"could not be written.*--output_dir"):
        LineFile(tmp_path / "file" / "metrics.jsonl")
    with pytest.raises(KeyError), explain_write_errors(tmp_path):
        raise KeyError("a bug")


def test_short_writes_are_continued(tmp_path):
    class Trickle:
        taken = b""

        def write(self, data: bytes) -> int:
            self.taken += data[:3]
            return len(data[:3])

    file = LineFile(tmp_path / "a.jsonl")
    file.close()
    file._file = Trickle()
    file.append({"step": 12})
    assert file._file.taken == b'{"step": 12}\n'


def test_replacing_a_file_keeps_the_old_one_when_the_disk_is_full(tmp_path):
    (tmp_path / "a").write_bytes(b"old")

    def chunks():
        yield b"half of the new"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UserError, match="disk is full"):
        replace_file(tmp_path / "a", chunks())
    assert (tmp_path / "a").read_bytes() == b"old" and list(tmp_path.iterdir()) == [tmp_path / "a"]
