"""Fills a file system with files of contents derived from their names, and checks them.

fill.py fill DIRECTORY MANIFEST SEED          writes files until there is no space, flushing each
fill.py fill-at-once DIRECTORY MANIFEST SEED [BYTES]
                                              writes files until there is no space, or until BYTES
                                              in total, with a single flush of all at the end
fill.py remove DIRECTORY MANIFEST             removes every second file
fill.py verify DIRECTORY MANIFEST             compares each file with the written data
fill.py fill-zones DIRECTORY MANIFEST SEED    fills each file of a zonefs, where files are zones
fill.py remove-zones DIRECTORY MANIFEST       empties every second file of a zonefs

The manifest is a file elsewhere that records the written files. Prints `FILES BYTES`.
"""

import errno
import json
import mmap
import os
import random
import sys

PIECE = 1 << 20


def pieces(name, length):
    """Yields pairs of an offset and bytes, length bytes in total. Each piece is one random MiB, rotated
    by a block per piece, and begins with its position."""
    base = random.Random(name).randbytes(PIECE)
    for n in range((length + PIECE - 1) // PIECE):
        turned = n % 256 * 4096
        head = f"{name} {n:08}\n".encode()
        data = head + base[turned + len(head) :] + base[:turned]
        yield n * PIECE, data[: min(PIECE, length - n * PIECE)]


def no_space(error):
    if error.errno not in (errno.ENOSPC, errno.EFBIG):
        raise error


def write_file(directory, name, length, is_flushed):
    """Writes a file, and optionally flushes it. Returns its size, and True if all of it fit."""
    fits = True
    file = os.open(os.path.join(directory, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        for _, data in pieces(name, length):
            while data:
                data = data[os.write(file, data) :]
    except OSError as error:
        no_space(error)
        fits = False
    if is_flushed:
        os.fsync(file)
    written = os.fstat(file).st_size
    os.close(file)
    return written, fits


def fill(directory, manifest, seed, bytes_max=1 << 60, is_flushed=True):
    chance = random.Random(seed)
    for n in range(1 << 20):
        if sum(manifest.values()) >= int(bytes_max):
            break
        # Mostly files of some MiB, but also small ones that do not end at a block boundary.
        length = chance.randrange(1, 1 << 16) if n % 4 == 3 else chance.randrange(PIECE, 6 * PIECE)
        name = f"{seed}-{n:05}"
        try:
            manifest[name], fits = write_file(directory, name, length, is_flushed)
        except OSError as error:
            # No room for a name, or for flushing data accepted before: the file may be incomplete.
            no_space(error)
            if os.path.exists(os.path.join(directory, name)):
                os.unlink(os.path.join(directory, name))
            break
        if not fits:
            break
    os.sync()


def fill_at_once(directory, manifest, seed, bytes_max=1 << 60):
    fill(directory, manifest, seed, bytes_max, is_flushed=False)


def remove(directory, manifest):
    for name in sorted(manifest)[::2]:
        os.unlink(os.path.join(directory, name))
        del manifest[name]
    os.sync()


def verify(directory, manifest):
    names = {name for name in os.listdir(directory) if name != "lost+found"}
    assert names == set(manifest), f"missing {sorted(set(manifest) - names)}, not written {sorted(names - set(manifest))}"
    for name, length in manifest.items():
        path = os.path.join(directory, name)
        assert os.path.getsize(path) == length, f"{name} has {os.path.getsize(path)} bytes, not {length}"
        # The contents of a zone's file depend on how often it was filled.
        with open(path, "rb") as file:
            for offset, data in pieces(manifest_names.get(name, name), length):
                assert file.read(len(data)) == data, f"{name} differs in the MiB at {offset}"


def fill_zones(directory, manifest, seed):
    """Fills each zone from the end of its data, bypassing the page cache, in whole blocks."""
    memory = mmap.mmap(-1, PIECE)
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if os.path.getsize(path) > 0:
            continue
        length = os.stat(path).st_blocks * 512
        manifest_names[name] = f"{seed}-{name}"
        file = os.open(path, os.O_WRONLY | os.O_DIRECT)
        for offset, data in pieces(manifest_names[name], length):
            memory[: len(data)] = data
            written = os.pwrite(file, memoryview(memory)[: len(data)], offset)
            assert written == len(data), f"{name}: {written} bytes of {len(data)} at {offset}"
        try:
            os.pwrite(file, memoryview(memory)[:4096], length)
            raise AssertionError(f"{name} takes more than its {length} bytes")
        except OSError as error:
            no_space(error)
        os.fsync(file)
        os.close(file)
        manifest[name] = length


def remove_zones(directory, manifest):
    for name in sorted(manifest)[::2]:
        os.truncate(os.path.join(directory, name), 0)
        manifest[name] = 0
    os.sync()


command, directory, path = sys.argv[1:4]
manifest, manifest_names = {}, {}
if os.path.exists(path):
    with open(path) as file:
        manifest, manifest_names = json.load(file)
fills = {"fill": fill, "fill-at-once": fill_at_once, "fill-zones": fill_zones}
if command in fills:
    fills[command](directory, manifest, *sys.argv[4:])
else:
    {"remove": remove, "remove-zones": remove_zones, "verify": verify}[command](directory, manifest)
with open(path, "w") as file:
    json.dump([manifest, manifest_names], file)
print(len(manifest), sum(manifest.values()))
