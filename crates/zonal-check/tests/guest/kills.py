"""Writes to a served drive while its server is killed repeatedly; verifies the data after each reconnection.

kills.py ZONED CONVENTIONAL ROUNDS SHARE: the disks, which may be a single one with zones of both
kinds, and the directory in which writers and killer synchronize. `writing-N` there means that the
writers of round N are at work, `killing-N` that the server is about to be killed, `restarted-N`
that it was restarted.

Writers of sequential zones: some make each write durable (O_DSYNC, which Linux sends as FUA), some
flush after several, and some append with FUA through the pass-through of an NVMe drive, two at a
time to one zone; on other drives they write like the rest. Writers of conventional zones overwrite
blocks, each write durable. A writer records each answered write and reset, flushed or not. Once the
server is back, every answered write must be there, write pointers must not be before them, reset
zones must not be full again, and every other block below a write pointer must be one that was sent.
Prints lines of a key and a value.
"""

import ctypes
import fcntl
import glob
import mmap
import os
import random
import struct
import sys
import threading
import time

BLOCK = 4096
# Zones of each kind of writer.
DURABLE, FLUSHED, APPENDED = range(0, 4), range(4, 8), range(8, 10)
APPENDERS = 2
OVERWRITERS = 2
WRITE_BLOCKS_MAX = 16
FLUSH_EVERY = 8

REPORT_ZONES = 3 << 30 | 16 << 16 | 0x12 << 8 | 130
RESET_ZONE = 1 << 30 | 16 << 16 | 0x12 << 8 | 131
COMMAND = struct.Struct("<BBHIIIQQIIIIIIIIIIQ")
IO64_CMD = 3 << 30 | COMMAND.size << 16 | ord("N") << 8 | 0x48
ZONE_APPEND, FUA = 0x7D, 1 << 30
RECONNECT_TIME_MAX = 120


def content(place, sequence):
    """A block that repeats its position and the number of its write."""
    return struct.pack("<QQ", place, sequence) * (BLOCK // 16)


class Memory:
    def __init__(self, blocks):
        self.map = mmap.mmap(-1, blocks * BLOCK)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def put(self, blocks):
        data = b"".join(blocks)
        self.map[: len(data)] = data
        return memoryview(self.map)[: len(data)]


class Counts:
    def __init__(self):
        self.lock = threading.Lock()
        self.of = dict.fromkeys(
            ["acknowledged", "flushed", "unanswered", "resets", "checked", "kept", "dropped", "overwritten", "repeated"], 0
        )

    def add(self, name, n=1):
        with self.lock:
            self.of[name] += n


counts = Counts()
sequences = iter(range(1, 1 << 62))
stop = threading.Event()
# Writers of this round that have received an answer, the file that announces the kill of their
# server, and failures of threads.
began = [0]
killing = [""]
failures = []


def is_killed():
    """True if the server of this round has been or is about to be killed. A lookup of the name could return a cached result of
    another thread, so the directory is read."""
    return killing[0] in os.listdir(sys.argv[4])


class Zone:
    """A sequential zone, with its possible and its required contents. One thread writes, or several append."""

    def __init__(self, disk, number, start, capacity):
        self.disk, self.number, self.start, self.capacity = disk, number, start, capacity
        self.lock = threading.Lock()
        self.clear()

    def clear(self):
        # Writes that may be in each block, the write pointer if all of them succeed, and the
        # required contents.
        self.sent = {}
        self.end = 0
        self.answered = 0
        self.required = {}
        self.unplaced = set()
        # Appends that were answered after a kill. Linux may have sent them to both servers: an
        # append that was executed but not answered is executed again.
        self.twice = set()
        self.is_reset = False

    def fail(self, what):
        raise AssertionError(f"zone {self.number}: {what}")

    def write_once(self, file, memory, chance):
        """Writes at the write pointer. `False` at the end of the zone."""
        blocks = min(chance.randrange(1, WRITE_BLOCKS_MAX + 1), self.capacity - self.end)
        if blocks == 0:
            return False
        sequence = next(sequences)
        at = self.end
        for block in range(at, at + blocks):
            self.sent[block] = sequence
        self.end += blocks
        data = memory.put([content(self.start + block, sequence) for block in range(at, at + blocks)])
        written = os.pwrite(file, data, (self.start + at) * BLOCK)
        if written != len(data):
            self.fail(f"{written} bytes of {len(data)} were written")
        self.answered = at + blocks
        counts.add("acknowledged")
        return True

    def reset(self, file):
        self.is_reset = True
        fcntl.ioctl(file, RESET_ZONE, struct.pack("<QQ", self.start * 8, self.zone_blocks * 8))
        counts.add("resets")
        self.clear()

    def report(self, file):
        """Returns condition and write pointer; the report also updates the kernel's write pointer."""
        words = bytearray(16 + 64)
        struct.pack_into("<QI", words, 0, self.start * 8, 1)
        fcntl.ioctl(file, REPORT_ZONES, words)
        start, _, pointer = struct.unpack_from("<QQQ", words, 16)
        return words[16 + 25], (pointer - start) // 8

    def tell_kernel(self, file, memory):
        """Makes the kernel notice a changed write pointer. It asks the drive only after a failed write, and if writes were answered
        and then lost, none has failed. This one does: it is at the position where the kernel assumes the write pointer."""
        try:
            os.pwrite(file, memory.put([bytes(BLOCK)]), (self.start + self.end) * BLOCK)
        except OSError:
            self.report(file)
            return
        self.fail(f"a write at {self.end} succeeded, which is beyond the pointer")

    def verify(self, file, memory):
        condition, pointer = self.report(file)
        # Empty, closed or full; open if the kernel has resent a write.
        if condition not in (1, 2, 4, 14):
            self.fail(f"condition {condition} after a restart")
        if condition == 14:
            pointer = self.capacity
        if pointer < self.end < self.capacity and not self.is_reset:
            self.tell_kernel(file, memory)
        if self.is_reset and pointer == 0:
            # The unanswered reset was executed.
            self.clear()
        if pointer < self.answered:
            self.fail(f"the pointer is at {pointer}, before what was answered: {self.answered}")
        if pointer > self.end and not self.twice:
            self.fail(f"the pointer is at {pointer}, after all that was sent: {self.end}")
        for block in range(pointer):
            if block % WRITE_BLOCKS_MAX == 0:
                length = min(WRITE_BLOCKS_MAX, pointer - block) * BLOCK
                read = os.preadv(file, [memoryview(memory.map)[:length]], (self.start + block) * BLOCK)
                if read != length:
                    self.fail(f"{read} bytes were read")
            self.look_at(block, bytes(memory.map[block % WRITE_BLOCKS_MAX * BLOCK :][:BLOCK]))
        counts.add("checked", pointer)
        counts.add("kept", pointer - self.answered)
        counts.add("dropped", self.end - pointer)
        # Everything below the write pointer is now permanent.
        os.fsync(file)
        self.end = self.answered = pointer
        self.twice = set()
        self.sent = {block: sequence for block, sequence in self.sent.items() if block < pointer}
        self.is_reset = False

    def look_at(self, block, data):
        if data != content(self.start + block, self.sent[block]):
            place, sequence = struct.unpack_from("<QQ", data)
            self.fail(f"block {block} is of write {sequence} to {place}, not of {self.sent[block]} to {self.start + block}")


class AppendedZone(Zone):
    """A zone of several appenders: the answer to an append contains its position."""

    def tell_kernel(self, file, memory):
        """Pass-through appends do not depend on the kernel's write pointer."""

    def append_once(self, file, memory, chance):
        blocks = chance.randrange(1, WRITE_BLOCKS_MAX + 1)
        with self.lock:
            if self.end + blocks > self.capacity:
                return None
            sequence = next(sequences)
            self.unplaced.add(sequence)
            # Upper bound of the data in the zone.
            self.end += blocks
        data = memory.put([content(self.number << 32 | block, sequence) for block in range(blocks)])
        words = bytearray(
            COMMAND.pack(
                *(ZONE_APPEND, 0, 0, self.disk.nsid, 0, 0, 0, memory.address, 0, len(data)),
                *(self.start & 0xFFFFFFFF, self.start >> 32, blocks - 1 | FUA, 0, 0, 0, 0, 0, 0),
            )
        )
        status = fcntl.ioctl(file, IO64_CMD, words)
        if status != 0:
            raise OSError(status, f"append: status {status:#x}")
        at = COMMAND.unpack(words)[-1] - self.start
        with self.lock:
            self.unplaced.discard(sequence)
            if is_killed():
                self.twice.add(sequence)
            for block in range(blocks):
                if self.required.setdefault(at + block, (block, sequence)) != (block, sequence):
                    self.fail(f"two appends were answered block {at + block}")
            self.answered = max(self.answered, at + blocks)
        counts.add("acknowledged")
        counts.add("flushed")
        return at + blocks

    def look_at(self, block, data):
        place, sequence = struct.unpack_from("<QQ", data)
        within = place & 0xFFFFFFFF
        if data != content(self.number << 32 | within, sequence):
            self.fail(f"block {block} is none that was sent")
        required = self.required.get(block)
        if required is None:
            if sequence not in self.unplaced | self.twice:
                self.fail(f"block {block} has write {sequence}, whose place is another")
            if sequence in self.twice:
                counts.add("repeated")
        elif required != (within, sequence):
            self.fail(f"block {block} has write {sequence}, not {required[1]}")
        # From now on it is required.
        self.required[block] = (within, sequence)


class Disk:
    def __init__(self, path):
        self.path = path
        self.directory = f"/sys/block/{path.removeprefix('/dev/')}"
        self.is_nvme = os.path.exists(f"{self.directory}/nsid")
        self.nsid = int(self.read("nsid")) if self.is_nvme else None

    def read(self, name):
        with open(f"{self.directory}/{name}") as file:
            return file.read().strip()

    def open(self, flags=0):
        return os.open(self.path, os.O_RDWR | os.O_DIRECT | flags)


class Blocks:
    """Blocks of the conventional disk, overwritten by one thread."""

    def __init__(self, disk, first, count):
        self.disk, self.first, self.count = disk, first, count
        # For each block, the last answered write, and those sent after it.
        self.answered, self.sent = {}, {}

    def write_once(self, file, memory, chance):
        block = self.first + chance.randrange(self.count)
        sequence = next(sequences)
        self.sent.setdefault(block, []).append(sequence)
        os.pwrite(file, memory.put([content(block, sequence)]), block * BLOCK)
        self.answered[block], self.sent[block] = sequence, []
        counts.add("acknowledged")
        counts.add("flushed")

    def verify(self, file, memory):
        for block in sorted(set(self.answered) | set(self.sent)):
            os.preadv(file, [memoryview(memory.map)[:BLOCK]], block * BLOCK)
            data = bytes(memory.map[:BLOCK])
            place, sequence = struct.unpack_from("<QQ", data)
            allowed = [self.answered.get(block, 0), *self.sent.get(block, [])]
            if sequence not in allowed or data != (content(block, sequence) if sequence else bytes(BLOCK)):
                raise AssertionError(f"block {block} has write {sequence} of {place}, not one of {allowed}")
            if sequence != allowed[0]:
                counts.add("overwritten")
            if sequence:
                self.answered[block], self.sent[block] = sequence, []
            counts.add("checked")
        os.fsync(file)


def repeat(step):
    """Repeats `step` until the round is over or the drive does not answer."""
    began_here = False
    while not stop.is_set():
        try:
            step()
        except OSError as error:
            if not is_killed():
                failures.append(f"a server that runs fails a request of {threading.current_thread().name}: {error}")
            counts.add("unanswered")
            return
        except AssertionError as error:
            failures.append(str(error))
            return
        if not began_here:
            began_here = True
            with counts.lock:
                began[0] += 1


def zone_writer(zone, is_durable, seed):
    chance, memory = random.Random(seed), Memory(WRITE_BLOCKS_MAX)
    file = zone.disk.open(os.O_DSYNC if is_durable else 0)
    writes = [0]

    def step():
        if not zone.write_once(file, memory, chance):
            zone.reset(file)
            return
        writes[0] += 1
        if not is_durable and writes[0] % FLUSH_EVERY == 0:
            os.fdatasync(file)
            counts.add("flushed", FLUSH_EVERY)
        elif is_durable:
            counts.add("flushed")

    repeat(step)
    os.close(file)


def appender(zones, seed):
    chance, memory = random.Random(seed), Memory(WRITE_BLOCKS_MAX)
    file = zones[0].disk.open()

    def step():
        # A full zone stays full until the end of the round.
        if zones[chance.randrange(len(zones))].append_once(file, memory, chance) is None:
            time.sleep(0.01)

    repeat(step)
    os.close(file)


def overwriter(blocks, seed):
    chance, memory = random.Random(seed), Memory(1)
    file = blocks.disk.open(os.O_DSYNC)
    repeat(lambda: blocks.write_once(file, memory, chance))
    os.close(file)


def is_reachable(disk):
    return not disk.is_nvme or disk.read("device/state") == "live"


def wait_for(what, seconds=RECONNECT_TIME_MAX):
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain")
        time.sleep(0.02)


def first_sequential(file, zone_blocks):
    """Number and capacity in blocks of the first sequential zone."""
    for zone in range(1 << 16):
        words = bytearray(16 + 64)
        struct.pack_into("<QI", words, 0, zone * zone_blocks * 8, 1)
        fcntl.ioctl(file, REPORT_ZONES, words)
        if words[16 + 24] == 2:
            return zone, struct.unpack_from("<Q", words, 16 + 32)[0] // 8
    raise AssertionError("no sequential zone")


def main():
    zoned, conventional = Disk(sys.argv[1]), Disk(sys.argv[2])
    rounds, share = int(sys.argv[3]), sys.argv[4]
    zone_blocks = int(zoned.read("queue/chunk_sectors")) // 8
    file = zoned.open()
    first, capacity = first_sequential(file, zone_blocks)
    Zone.zone_blocks = zone_blocks
    appends = APPENDED if zoned.is_nvme else range(0)
    zones = [
        (AppendedZone if n in appends else Zone)(zoned, n, (first + n) * zone_blocks, capacity)
        for n in [*DURABLE, *FLUSHED, *APPENDED]
    ]
    blocks = int(conventional.read("size")) // 8 if conventional.path != zoned.path else first * zone_blocks
    blocks //= OVERWRITERS
    overwritten = [Blocks(conventional, n * blocks, blocks) for n in range(OVERWRITERS)]
    conventional_file = conventional.open()
    memory = Memory(WRITE_BLOCKS_MAX)

    for turn in range(rounds):
        stop.clear()
        began[0] = 0
        killing[0] = f"killing-{turn}"
        seed = turn * 1000
        threads = []
        for n, zone in enumerate(zones):
            if n not in appends:
                threads.append((zone_writer, zone, n in DURABLE, seed + n))
        appended = [zones[n] for n in appends]
        for n in range(APPENDERS if appended else 0):
            threads.append((appender, appended, seed + 100 + n))
        for n, part in enumerate(overwritten):
            threads.append((overwriter, part, seed + 200 + n))
        # A failure ends the program regardless of running threads.
        threads = [threading.Thread(target=target, args=args, daemon=True) for target, *args in threads]
        for thread in threads:
            thread.start()
        wait_for(lambda: failures or began[0] == len(threads))
        assert not failures, f"round {turn}: {failures}"
        open(f"{share}/writing-{turn}", "w").close()
        wait_for(lambda: os.path.exists(f"{share}/restarted-{turn}"), 300)
        stop.set()
        wait_for(lambda: is_reachable(zoned))
        for thread in threads:
            thread.join()
        assert not failures, f"round {turn}: {failures}"
        killing[0] = ""
        for zone in zones:
            zone.verify(file, memory)
        for part in overwritten:
            part.verify(conventional_file, memory)
        for zone in appended:
            if zone.end == zone.capacity or zone.end + WRITE_BLOCKS_MAX > zone.capacity:
                zone.reset(file)
    for name, n in counts.of.items():
        print(f"{name} {n}")
    print(f"pointers {' '.join(str(zone.end) for zone in zones)}")


main()
