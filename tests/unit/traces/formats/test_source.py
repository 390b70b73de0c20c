"""Bytes of files: whole, in pieces, compressed, damaged."""

import gzip
import os
import random
import zlib

import pytest

from benchmarker import UserError
from benchmarker.traces.formats import reading
from benchmarker.traces.formats.reading import Source

TEXT = b"".join(b"%d %s\n" % (number, os.urandom(3).hex().encode()) for number in range(3000))


def put(tmp_path, content: bytes) -> Source:
    (tmp_path / "trace").write_bytes(content)
    return Source(tmp_path / "trace")


def whole(source: Source) -> bytes:
    return b"".join(source.pieces())


@pytest.mark.parametrize("piece", [1, 7, 100, 4096, 1 << 20])
@pytest.mark.parametrize("read", [1, 13, 1 << 20])
def test_pieces_are_the_content(tmp_path, monkeypatch, piece, read):
    monkeypatch.setattr(reading, "PIECE", piece)
    monkeypatch.setattr(reading, "_READ", read)
    for content in (TEXT[:3000], gzip.compress(TEXT[:3000])):
        made = put(tmp_path, content)
        pieces = list(made.pieces())
        assert b"".join(pieces) == TEXT[:3000]
        assert all(0 < len(each) <= piece for each in pieces)
        assert not made.cut_short
        assert made.compressed == (content[:2] == b"\x1f\x8b")


def test_members_follow_each_other(tmp_path):
    made = put(tmp_path, gzip.compress(b"one,") + gzip.compress(b"") + gzip.compress(b"two"))
    assert whole(made) == b"one,two"
    assert not made.cut_short


def test_an_empty_file_has_no_pieces(tmp_path):
    made = put(tmp_path, b"")
    assert (list(made.pieces()), made.compressed, made.cut_short) == ([], False, False)


def test_compressed_data_that_is_cut_at_any_byte_gives_its_begin_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "PIECE", 50)
    packed = gzip.compress(TEXT[:600])
    for cut in range(2, len(packed)):
        made = put(tmp_path, packed[:cut])
        assert TEXT[:600].startswith(whole(made))
        assert made.cut_short
    made = put(tmp_path, packed[:-1])
    assert whole(made) == TEXT[:600]


def test_damaged_data_is_refused(tmp_path):
    packed = bytearray(gzip.compress(TEXT, mtime=0))
    rng = random.Random(3)
    refused = 0
    for _ in range(50):
        damaged = bytearray(packed)
        damaged[rng.randrange(10, len(packed) - 8)] ^= 0xFF
        made = put(tmp_path, bytes(damaged))
        try:
            whole(made)
        except UserError as error:
            assert str(error).startswith(f"{tmp_path / 'trace'}: damaged gzip data: ")
            refused += 1
        else:
            assert made.cut_short
    assert refused > 40
    packed[-6] ^= 1  # the checksum
    with pytest.raises(UserError, match=r"damaged gzip data: .*incorrect data check"):
        whole(put(tmp_path, bytes(packed)))


def test_words_after_the_compressed_data_are_refused(tmp_path):
    with pytest.raises(UserError, match="damaged gzip data"):
        whole(put(tmp_path, gzip.compress(b"{}") + b"garbage"))


def test_a_bomb_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "PIECE", 1000)
    monkeypatch.setattr(reading, "BOMB_BYTES", 10_000)
    packed = gzip.compress(bytes(1_000_000))
    given = 0
    with pytest.raises(UserError, match=r"expand to more than \d+: this is not a trace; unpack it yourself"):
        for piece in put(tmp_path, packed).pieces():
            given += len(piece)
    assert given <= max(10_000, 200 * len(packed))
    honest = gzip.compress(TEXT)
    assert whole(put(tmp_path, honest)) == TEXT


def test_a_bomb_of_members(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "BOMB_BYTES", 10_000)
    with pytest.raises(UserError, match="this is not a trace"):
        whole(put(tmp_path, gzip.compress(bytes(100_000)) * 20))


@pytest.mark.parametrize(("place", "reason"), [("nowhere", "No such file or directory"), (".", "Is a directory")])
def test_what_cannot_be_opened_is_named(tmp_path, place, reason):
    with pytest.raises(UserError, match=reason):
        Source(tmp_path / place)


def test_a_file_that_goes_away(tmp_path):
    made = put(tmp_path, TEXT)
    (tmp_path / "trace").unlink()
    with pytest.raises(UserError, match="No such file"):
        list(made.pieces())


def test_raw_deflate_is_no_gzip(tmp_path):
    made = put(tmp_path, zlib.compress(TEXT))
    assert not made.compressed
    assert whole(made) == zlib.compress(TEXT)
