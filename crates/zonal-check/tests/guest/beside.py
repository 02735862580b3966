"""What programs do to a file system, and what comes to its disks meanwhile; then what a write that fails costs.

beside.py load DIRECTORY SYNC CONTROLLER   runs each load, and prints a line of each: its name, bytes of the program, seconds, operations,
                                         and bytes that the drive was given, until SYNC, a command, has ended. The drive counts thousands
                                         of sectors, and a controller that is attached tells them
beside.py write DIRECTORY FILES          writes files of a MiB, each flushed, however many of them fail; prints how many did, after how
                                         many the first did, how many after that did not, and the errors
beside.py verify DIRECTORY FILES         reads the files that were flushed, and prints how many are as they were written

The files of `write` are listed in /tmp/flushed.
"""

import errno
import json
import mmap
import os
import random
import subprocess
import sys
import time

MIB = 1 << 20
BLOCK = 4096
FLUSHED = "/tmp/flushed"


def bytes_written(controller):
    """Bytes that the drive was given to write, by all hosts."""
    log = subprocess.run(["nvme", "smart-log", controller, "--output-format=json"], check=True, capture_output=True)
    return int(json.loads(log.stdout)["data_units_written"]) * 512_000


def whole(path, data, is_flushed=True):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        if is_flushed:
            os.fsync(file)
    finally:
        os.close(file)


class Loads:
    """Each method is a load: it returns the bytes that it wrote or read, and its operations."""

    def __init__(self, directory):
        self.directory = directory
        self.chance = random.Random(7)
        self.piece = self.chance.randbytes(MIB)

    def path(self, name):
        return os.path.join(self.directory, name)

    def stream(self):
        """A file written in a row and flushed."""
        with open(self.path("stream"), "wb", buffering=0) as file:
            for _ in range(96):
                file.write(self.piece)
            os.fsync(file.fileno())
        return 96 * MIB, 96

    def stream_read(self):
        """The same read from the drive."""
        with open(self.path("stream"), "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while file.read(MIB):
                pass
        return 96 * MIB, 96

    def small_files(self):
        """Files of 4 KiB in 20 directories."""
        for n in range(1500):
            if n % 75 == 0:
                os.mkdir(self.path(f"small{n // 75}"))
            whole(self.path(f"small{n // 75}/{n}"), self.piece[:BLOCK], is_flushed=False)
        return 1500 * BLOCK, 1500

    def appends(self):
        """100 bytes and a flush, again and again."""
        with open(self.path("log"), "ab", buffering=0) as file:
            for _ in range(600):
                file.write(self.piece[:100])
                os.fsync(file.fileno())
        return 600 * 100, 600

    def overwrites(self):
        """Blocks of the stream's file in no order, with a flush for every 256."""
        with open(self.path("stream"), "r+b", buffering=0) as file:
            for n in range(8192):
                os.pwrite(file.fileno(), self.piece[:BLOCK], self.chance.randrange(96 * 256) * BLOCK)
                if n % 256 == 255:
                    os.fdatasync(file.fileno())
        return 8192 * BLOCK, 8192

    def direct_reads(self):
        """Blocks of the stream's file in no order, each read from the drive."""
        memory = mmap.mmap(-1, BLOCK)
        file = os.open(self.path("stream"), os.O_RDONLY | os.O_DIRECT)
        for _ in range(1000):
            os.preadv(file, [memory], self.chance.randrange(96 * 256) * BLOCK)
        os.close(file)
        return 1000 * BLOCK, 1000

    def replaced_files(self):
        """The drive filled to nine tenths with files of 1 to 4 MiB, then as many bytes again, each file in the place of another."""
        room = os.statvfs(self.directory)
        wanted = room.f_bavail * room.f_frsize * 9 // 10
        written, files = 0, []
        while written < wanted:
            length = self.chance.randrange(1, 5) * MIB
            files.append(length)
            whole(self.path(f"kept{len(files)}"), self.piece * (length // MIB), is_flushed=False)
            written += length
        subprocess.run(SYNC, shell=True, check=True)
        again = 0
        while again < written:
            n = self.chance.randrange(len(files))
            os.unlink(self.path(f"kept{n + 1}"))
            whole(self.path(f"kept{n + 1}"), self.piece * (files[n] // MIB), is_flushed=False)
            again += files[n]
        return written + again, len(files)


def load(directory, sync, controller):
    global SYNC
    SYNC = sync
    loads = Loads(directory)
    for name in ("stream", "stream_read", "small_files", "appends", "overwrites", "direct_reads", "replaced_files"):
        subprocess.run(sync, shell=True, check=True)
        before, begin = bytes_written(controller), time.monotonic()
        try:
            length, operations = getattr(loads, name)()
            subprocess.run(sync, shell=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(name, "failed", str(error).replace("\n", " "), flush=True)
            continue
        seconds = time.monotonic() - begin
        print(name, length, f"{seconds:.3f}", operations, bytes_written(controller) - before, flush=True)


def data_of(n):
    return random.Random(n).randbytes(MIB)


def write(directory, files):
    flushed, errors, first = [], {}, None
    for n in range(int(files)):
        try:
            whole(os.path.join(directory, f"f{n}"), data_of(n))
            flushed.append(n)
        except OSError as error:
            first = n if first is None else first
            name = errno.errorcode.get(error.errno, str(error.errno))
            errors[name] = errors.get(name, 0) + 1
    with open(FLUSHED, "w") as file:
        json.dump(flushed, file)
    after = sum(n > first for n in flushed) if first is not None else 0
    said = ",".join(f"{name}:{count}" for name, count in sorted(errors.items())) or "none"
    print(int(files) - len(flushed), "none" if first is None else first, after, said)


def verify(directory, files):
    flushed = json.load(open(FLUSHED))
    intact = 0
    for n in flushed:
        try:
            with open(os.path.join(directory, f"f{n}"), "rb") as file:
                intact += file.read() == data_of(n)
        except OSError:
            pass
    print(intact, len(flushed))


{"load": load, "write": write, "verify": verify}[sys.argv[1]](*sys.argv[2:])
