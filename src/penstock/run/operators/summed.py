"""Files with checksums that are kept beside them: made while a file is written, compared with what is read of it.

Rows that nobody can make again lie in files of formats that do not check themselves: Arrow streams have no checksums,
and those of Parquet leave out heads of pages and the footer. So all bytes count here, whatever the format. A file that
is read in pieces has a sum for every `CHUNK_BYTES`; each is compared when bytes of it are read, so nothing is read
twice (`test_no_flipped_bit_of_a_spooled_file_gets_through`). CRCs, because they cost a fifth of any other sum and no
stranger is to be kept out: who can write into the folder can write the sums.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from penstock.errors import CheckpointDamaged

CHUNK_BYTES = 256 << 10
_SUM = struct.Struct("<I")
ADVICE = "restore the file from a backup, or begin anew in an empty folder"


class InputDamaged(CheckpointDamaged):
    """A file from which a source reads is not as it was written: so it will be for every other attempt at the job."""

    def __init__(self, path: str, fault: str) -> None:
        super().__init__(path, fault, ADVICE)


class Summed:
    """A stream that is written, and the sum of its bytes so far."""

    closed = False  # for pyarrow

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 # of pyarrow.fs
        self._stream = stream
        self.sum = 0

    def write(self, data: Any) -> None:  # noqa: ANN401 # any buffer
        """More bytes."""
        self.sum = zlib.crc32(data, self.sum)
        self._stream.write(data)

    def flush(self) -> None:
        """Later: nobody sees the file before it is closed."""

    def close(self) -> None:
        """The file is whole."""
        self._stream.close()


def chunks(file: BinaryIO) -> Iterator[bytes]:
    """The bytes of a file, from where it stands."""
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def sum_of(file: BinaryIO) -> int:
    """The sum of a whole file."""
    found = 0
    for chunk in chunks(file):
        found = zlib.crc32(chunk, found)
    return found


class SummedFile(NamedTuple):
    """A file of this machine, with what is known of its bytes."""

    path: str
    size: int
    sums: bytes  # of each chunk

    @classmethod
    def of(cls, path: str, then: Callable[[BinaryIO], object] = lambda file: None) -> SummedFile:
        """A file as it is now; `then` is given the open file."""
        size, sums = 0, bytearray()
        with open(path, "rb", buffering=0) as file:
            while chunk := _filled(file, CHUNK_BYTES):
                size += len(chunk)
                sums += _SUM.pack(zlib.crc32(chunk))
            then(file)
        return cls(path, size, bytes(sums))

    def faults(self) -> list[str]:
        """What is wrong with the file, all of which is read."""
        try:
            found = SummedFile.of(self.path)
        except FileNotFoundError:
            return [f"{self.path} is not there"]
        except OSError as error:
            return [f"{self.path} cannot be read: {error.strerror or error}"]
        if found.size != self.size:
            return [f"{self.path} has {found.size:,} bytes where {self.size:,} were written"]
        return [] if found.sums == self.sums else [f"{self.path} does not match its checksums"]


class SummedReader:
    """A file to be read, for pyarrow; InputDamaged where bytes are not those that were written.

    It holds nothing open: whoever reads may stop anywhere and forget it.
    """

    closed = False

    def __init__(self, file: SummedFile) -> None:
        self._file, self._at = file, 0
        self._last: tuple[int, bytes] = (-1, b"")  # pieces that are asked for are smaller than chunks, and come in turn

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where it stands."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go on elsewhere."""
        self._at = offset + (0, self._at, self._file.size)[whence]
        return self._at

    def close(self) -> None:
        """Nothing is open."""

    def read(self, count: int = -1) -> bytes:
        """Bytes, and only such as were written."""
        begin, size = self._at, self._file.size
        end = size if count < 0 else min(begin + count, size)
        if begin >= end:
            return b""
        self._at = end
        first, last = begin // CHUNK_BYTES, (end - 1) // CHUNK_BYTES
        if first == last == self._last[0]:
            data = self._last[1]
        else:
            data = self._checked(first, last)
            self._last = last, data[(last - first) * CHUNK_BYTES :]
        start = first * CHUNK_BYTES
        return data[begin - start : end - start]

    def _checked(self, first: int, last: int) -> bytes:
        path, size, sums = self._file
        start, end = first * CHUNK_BYTES, min((last + 1) * CHUNK_BYTES, size)
        try:
            with open(path, "rb", buffering=0) as file:
                file.seek(start)
                data = _filled(file, end - start)
        except FileNotFoundError:
            raise InputDamaged(path, "it is not there") from None
        view = memoryview(data)
        for chunk in range(first, last + 1):
            at = (chunk - first) * CHUNK_BYTES
            if _SUM.pack(zlib.crc32(view[at : at + CHUNK_BYTES])) != sums[chunk * _SUM.size :][: _SUM.size]:
                where = start + at
                fault = f"its bytes {where:,} to {min(where + CHUNK_BYTES, size):,} do not match their checksum"
                raise InputDamaged(path, fault)
        return data


def _filled(file: Any, count: int) -> bytes:  # noqa: ANN401 # a raw file
    """So many bytes, or what there is: one call of the system may give fewer."""
    data: bytes = file.read(count)
    if len(data) in (0, count):
        return data
    parts = [data]
    while (missing := count - sum(map(len, parts))) and (data := file.read(missing)):
        parts.append(data)
    return b"".join(parts)
