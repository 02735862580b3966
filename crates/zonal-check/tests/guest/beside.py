"""Measures loads on a file system with the resulting writes of its drive, and the effect of a failed write.

beside.py load DIRECTORY SYNC CONTROLLER  runs each load, and prints a line for each: its name, bytes
                                          of the program, seconds, operations, and bytes written to
                                          the drive until the command SYNC has ended. The drive
                                          counts thousands of sectors, and reports them through its
                                          attached controller
beside.py write DIRECTORY FILES           writes files of 1 MiB, flushing each, and goes on after
                                          failures; prints the number of failures, the number of
                                          files before the first failure, the number of successes
                                          after it, and the errors
beside.py verify DIRECTORY FILES          reads the flushed files, and prints how many are intact
beside.py files DIRECTORY JOBS FILES LEAST MOST
                                          writes files of LEAST to MOST MiB through the page cache in
                                          as many processes as there are jobs, FILES each, one after
                                          the other; prints the bytes and the seconds until all of
                                          them are on the drive
beside.py overwrite DIRECTORY MIB PERCENT fills that part of the space with files of one size, and
                                          then overwrites each once, in random order; prints the same
                                          for the second part

`write` lists its flushed files in /tmp/flushed.
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
    """Bytes written to the drive by all hosts."""
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
    """Each method is a load. It returns the number of bytes written or read, and of operations."""

    def __init__(self, directory):
        self.directory = directory
        self.chance = random.Random(7)
        self.piece = self.chance.randbytes(MIB)

    def path(self, name):
        return os.path.join(self.directory, name)

    def stream(self):
        """Writes a file sequentially and flushes it."""
        with open(self.path("stream"), "wb", buffering=0) as file:
            for _ in range(96):
                file.write(self.piece)
            os.fsync(file.fileno())
        return 96 * MIB, 96

    def stream_read(self):
        """Reads the file of the stream from the drive."""
        with open(self.path("stream"), "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while file.read(MIB):
                pass
        return 96 * MIB, 96

    def small_files(self):
        """Writes files of 4 KiB to 20 directories."""
        for n in range(1500):
            if n % 75 == 0:
                os.mkdir(self.path(f"small{n // 75}"))
            whole(self.path(f"small{n // 75}/{n}"), self.piece[:BLOCK], is_flushed=False)
        return 1500 * BLOCK, 1500

    def appends(self):
        """Appends 100 bytes and flushes, repeatedly."""
        with open(self.path("log"), "ab", buffering=0) as file:
            for _ in range(600):
                file.write(self.piece[:100])
                os.fsync(file.fileno())
        return 600 * 100, 600

    def overwrites(self):
        """Overwrites random blocks of the stream's file, with a flush after every 256."""
        with open(self.path("stream"), "r+b", buffering=0) as file:
            for n in range(8192):
                os.pwrite(file.fileno(), self.piece[:BLOCK], self.chance.randrange(96 * 256) * BLOCK)
                if n % 256 == 255:
                    os.fdatasync(file.fileno())
        return 8192 * BLOCK, 8192

    def direct_reads(self):
        """Reads random blocks of the stream's file, bypassing the page cache."""
        memory = mmap.mmap(-1, BLOCK)
        file = os.open(self.path("stream"), os.O_RDONLY | os.O_DIRECT)
        for _ in range(1000):
            os.preadv(file, [memory], self.chance.randrange(96 * 256) * BLOCK)
        os.close(file)
        return 1000 * BLOCK, 1000

    def replaced_files(self):
        """Fills the drive to 90% with files of 1 to 4 MiB, then overwrites as many bytes by replacing files."""
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


def files(directory, jobs, number, least, most):
    os.makedirs(directory)
    chance = random.Random(7)
    sizes = [[chance.randint(int(least) * 256, int(most) * 256) * BLOCK for _ in range(int(number))] for _ in range(int(jobs))]
    # The largest write is that of the jobs of experiments/s0-files.
    memory = mmap.mmap(-1, MIB if int(most) > 8 else 8 * MIB)
    memory.write(b"z" * len(memory))
    begin = time.monotonic()
    for job, of_job in enumerate(sizes):
        if os.fork() == 0:
            for n, size in enumerate(of_job):
                file = os.open(os.path.join(directory, f"{job}.{n}"), os.O_WRONLY | os.O_CREAT)
                while size:
                    size -= os.write(file, memoryview(memory)[: min(size, len(memory))])
                os.close(file)
            os._exit(0)
    if any(os.wait()[1] for _ in sizes):
        sys.exit("a job failed")
    os.sync()
    print(sum(map(sum, sizes)), f"{time.monotonic() - begin:.3f}")


def overwrite(directory, mib, percent):
    size = int(mib) * MIB
    os.makedirs(directory)
    room = os.statvfs(directory)
    paths = [os.path.join(directory, str(n)) for n in range(room.f_blocks * room.f_frsize * int(percent) // 100 // size)]
    memory = mmap.mmap(-1, size)
    memory.write(b"z" * size)
    # Bypassing the page cache, this part takes no time of the processors.
    for path in paths:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
        if os.write(file, memory) < size:
            sys.exit("a write was short")
        os.close(file)
    os.sync()
    random.Random(7).shuffle(paths)
    begin = time.monotonic()
    for path in paths:
        file = os.open(path, os.O_WRONLY)
        if os.write(file, memory) < size:
            sys.exit("a write was short")
        os.close(file)
    os.sync()
    print(len(paths) * size, f"{time.monotonic() - begin:.3f}")


{"load": load, "write": write, "verify": verify, "files": files, "overwrite": overwrite}[sys.argv[1]](*sys.argv[2:])
