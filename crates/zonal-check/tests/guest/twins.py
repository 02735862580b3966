"""Sends equal commands to two zoned drives, and compares the answers.

twins.py FIRST SECOND SEED COMMANDS: disks of namespaces of equal shape with empty zones. Each
command goes to the first drive and then to the second one, through the kernel's pass-through, so
that the drives' own answers are compared. Prints a line for each kind of difference, with the
first command that showed it, and lines of a key and a number for the commands and comparisons.
"""

import collections
import ctypes
import fcntl
import mmap
import random
import struct
import sys

WRITE, READ, WRITE_ZEROES, VERIFY, FLUSH = 0x01, 0x02, 0x08, 0x0C, 0x00
SEND, RECEIVE, APPEND = 0x79, 0x7A, 0x7D
CLOSE, FINISH, OPEN, RESET, OFFLINE, SET_EXTENSION = 1, 2, 3, 4, 5, 0x10
ACTIONS = {CLOSE: "close", FINISH: "finish", OPEN: "open", RESET: "reset", OFFLINE: "offline", SET_EXTENSION: "set-extension"}
CONDITIONS = {1: "EMPTY", 2: "IMP_OPEN", 3: "EXP_OPEN", 4: "CLOSED", 13: "READ_ONLY", 14: "FULL", 15: "OFFLINE"}
SELECT_ALL = 1 << 8
PARTIAL = 1 << 16
FUA = 1 << 30
BLOCK = 4096
ROOM = 1 << 20
# Zones that get most of the commands, so that limits are reached and zones become full.
BUSY_ZONES = 10
# Number of commands after which both drives report all zones.
REPORT_EVERY = 10

# struct nvme_passthru_cmd64, and its ioctl.
COMMAND = struct.Struct("<BBHIIIQQIIIIIIIIIIQ")
IO64_CMD = 3 << 30 | COMMAND.size << 16 | ord("N") << 8 | 0x48

Command = collections.namedtuple("Command", "name opcode lba dword12 dword13 to_drive from_drive", defaults=(0, 0, b"", 0))


class Drive:
    """A namespace, and memory for the data of one command."""

    def __init__(self, path):
        self.file = open(path, "rb+", buffering=0)
        with open(f"/sys/block/{path.removeprefix('/dev/')}/nsid") as nsid:
            self.nsid = int(nsid.read())
        self.memory = mmap.mmap(-1, ROOM)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def send(self, command):
        """Returns the status as printed by hosts, the result, and the data."""
        length = len(command.to_drive) or command.from_drive
        self.memory[:length] = command.to_drive or bytes([0xEE]) * length
        words = bytearray(
            COMMAND.pack(
                *(command.opcode, 0, 0, self.nsid, 0, 0, 0, self.address if length else 0, 0, length),
                *(command.lba & 0xFFFFFFFF, command.lba >> 32, command.dword12, command.dword13, 0, 0, 0, 0, 0),
            )
        )
        try:
            status = fcntl.ioctl(self.file, IO64_CMD, words)
        except OSError as error:
            status = f"errno {error.errno}"
        result = COMMAND.unpack(words)[-1]
        return status, result, self.memory[: command.from_drive]


def report(drive, zones):
    """Condition, capacity, start and pointer of each zone, and the whole descriptor."""
    length = 64 * (zones + 1)
    status, _, data = drive.send(Command("report", RECEIVE, 0, length // 4 - 1, PARTIAL, from_drive=length))
    assert status == 0, f"a report of all zones fails: {status}"
    assert struct.unpack_from("<Q", data)[0] == zones, "the zones are not as many as they were"
    rows = []
    for n in range(1, zones + 1):
        row = data[64 * n : 64 * n + 64]
        capacity, start, pointer = struct.unpack_from("<QQQ", row, 8)
        rows.append((row[1] >> 4, capacity, start, pointer, row))
    return rows


class Commands:
    """Draws commands, most of which are valid in the current states of the zones."""

    def __init__(self, seed, rows):
        self.random = random.Random(seed)
        self.rows = rows
        self.zone_blocks = rows[1][2] - rows[0][2]
        self.blocks = self.zone_blocks * len(rows)

    def zone(self):
        zones = BUSY_ZONES if self.random.random() < 0.9 else len(self.rows)
        return self.random.randrange(zones)

    def start(self, zone):
        """The start of the zone; occasionally another block of it, or one beyond the drive."""
        chance = self.random.random()
        if chance < 0.95:
            return self.rows[zone][2]
        if chance < 0.98:
            return self.rows[zone][2] + self.random.randrange(self.zone_blocks)
        return self.blocks + self.random.randrange(self.zone_blocks)

    def count(self, zone):
        """Number of blocks to write: a few, the rest of the zone, or one more than that."""
        condition, capacity, start, pointer, _ = self.rows[zone]
        left = start + capacity - pointer if condition in (1, 2, 3, 4) else capacity
        chance = self.random.random()
        if chance < 0.25 and left < 32:
            return max(1, left)
        if chance < 0.3:
            return min(left + 1, 64)
        return self.random.randrange(1, 33)

    def data(self, blocks):
        """Repeats a block of random bytes, each time beginning with its position."""
        block = self.random.randbytes(BLOCK)
        return b"".join(struct.pack("<Q", n) + block[8:] for n in range(blocks))

    def fua(self):
        return FUA if self.random.random() < 0.1 else 0

    def write(self):
        zone = self.zone()
        _, _, start, pointer, _ = self.rows[zone]
        chance = self.random.random()
        lba = pointer
        if chance > 0.97:
            lba = start + self.random.randrange(self.zone_blocks)
        elif chance > 0.94:
            lba = self.blocks - self.random.randrange(4)
        elif chance > 0.91:
            lba = max(start, pointer - 1)
        blocks = self.count(zone)
        dword12 = blocks - 1 | self.fua()
        if self.random.random() < 0.1:
            return Command("write-zeroes", WRITE_ZEROES, lba, dword12)
        return Command("write", WRITE, lba, dword12, to_drive=self.data(blocks))

    def append(self):
        zone = self.zone()
        blocks = self.count(zone)
        return Command("append", APPEND, self.start(zone), blocks - 1 | self.fua(), to_drive=self.data(blocks))

    def read(self):
        zone = self.zone()
        lba = self.rows[zone][2] + self.random.randrange(self.zone_blocks)
        if self.random.random() < 0.05:
            lba = self.blocks - self.random.randrange(8)
        blocks = self.random.randrange(1, 65)
        if self.random.random() < 0.1:
            return Command("verify", VERIFY, lba, blocks - 1)
        return Command("read", READ, lba, blocks - 1, from_drive=blocks * BLOCK)

    def manage(self):
        actions = [(OPEN, 30), (CLOSE, 25), (FINISH, 15), (RESET, 25), (OFFLINE, 3), (SET_EXTENSION, 1)]
        action = self.random.choices([action for action, _ in actions], [weight for _, weight in actions])[0]
        name = ACTIONS[action]
        if self.random.random() < 0.06:
            return Command(f"{name}-all", SEND, self.start(self.zone()), 0, action | SELECT_ALL)
        return Command(name, SEND, self.start(self.zone()), 0, action)

    def report(self):
        lba = self.random.randrange(self.blocks)
        if self.random.random() < 0.03:
            lba = self.blocks + self.random.randrange(4)
        option = self.random.randrange(8)
        partial = self.random.choice([0, PARTIAL])
        room = self.random.choice([1, 2, 5, 17, len(self.rows) + 1, len(self.rows) + 4]) * 64
        # Includes lengths that are not a multiple of a descriptor.
        room += self.random.choice([0, 0, 0, 4, 60])
        return Command("report", RECEIVE, lba, room // 4 - 1, option << 8 | partial, from_drive=room)

    def invalid(self):
        start = self.rows[self.zone()][2]
        return self.random.choice(
            [
                Command("unknown-action", SEND, start, 0, self.random.choice([0, 6, 9, 0x20, 0xFF])),
                Command("unknown-report", RECEIVE, start, 1023, self.random.choice([2, 3, 0xFF]), from_drive=4096),
                Command("extended-report", RECEIVE, start, 1023, 1, from_drive=4096),
                Command("unknown-option", RECEIVE, start, 1023, self.random.choice([8, 10, 0xFF]) << 8, from_drive=4096),
                Command("small-report", RECEIVE, start, 7, PARTIAL, from_drive=32),
                Command("unknown-opcode", self.random.choice([0x6C, 0x7B, 0x90]), start),
                Command("far-write", WRITE, 1 << 60, 0, to_drive=bytes(BLOCK)),
                Command("far-read", READ, (1 << 64) - 1, 0, from_drive=BLOCK),
                Command("far-append", APPEND, 1 << 55, 0, to_drive=bytes(BLOCK)),
                Command("far-open", SEND, 1 << 63, 0, OPEN),
            ]
        )

    def next(self):
        kinds = [
            (self.write, 30),
            (self.append, 20),
            (self.read, 13),
            (self.manage, 25),
            (self.report, 6),
            (self.invalid, 4),
            (lambda: Command("flush", FLUSH, 0), 2),
        ]
        return self.random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]()


def shown(status):
    return status if isinstance(status, str) else f"{status:#x}"


def describe(command, rows):
    zone_blocks = rows[1][2] - rows[0][2]
    zone = command.lba // zone_blocks
    where = f"{command.lba:#x}"
    if zone < len(rows):
        condition, capacity, start, pointer, _ = rows[zone]
        where = f"zone {zone}+{command.lba - start}, which was {CONDITIONS[condition]} at {pointer - start} of {capacity}"
    return f"{command.name} dword12={command.dword12:#x} dword13={command.dword13:#x} of {where}"


class Differences:
    """Differences by kind."""

    def __init__(self):
        self.first = {}
        self.counts = collections.Counter()

    def add(self, kind, n, what):
        self.counts[kind] += 1
        self.first.setdefault(kind, f"command {n}, {what}")

    def tell(self):
        for kind, count in sorted(self.counts.items()):
            print(f"difference {count} {kind}; first: {self.first[kind]}")


def conditions(rows):
    return " ".join(f"{CONDITIONS.get(row[0], row[0])}:{row[3] - row[2]}" for row in rows)


def comparable(data):
    """A report without the write pointers of full, read-only and offline zones, which are undefined
    (ZNS 3.4.2.2.4)."""
    data = bytearray(data)
    for at in range(64, len(data) - 31, 64):
        if data[at + 1] >> 4 in (13, 14, 15):
            data[at + 24 : at + 32] = bytes(8)
    return bytes(data)


def zone_of(row):
    """Meaningful part of a zone's descriptor."""
    return comparable(bytes(64) + row[4])


def shown_zone(row):
    return f"{CONDITIONS[row[0]]} at {row[3] - row[2]}, {row[4][:8].hex()}"


class Twins:
    """Two drives, with the differences between them."""

    def __init__(self, paths, seed):
        self.drives = [Drive(path) for path in paths]
        with open(f"/sys/block/{paths[0].removeprefix('/dev/')}/queue/nr_zones") as file:
            self.zones = int(file.read())
        self.differences = Differences()
        self.counts = collections.Counter()
        self.sent, self.statuses = collections.Counter(), collections.Counter()
        rows, others = self.reports()
        assert [row[:4] for row in rows] == [row[:4] for row in others], "the drives have one shape and begin in one state"
        self.commands = Commands(seed, rows)

    def reports(self):
        self.counts["descriptors"] += self.zones
        return [report(drive, self.zones) for drive in self.drives]

    def step(self, n):
        command = self.commands.next()
        about = describe(command, self.commands.rows)
        self.sent[command.name] += 1
        self.answers(n, command, about)
        if command.opcode in (WRITE, WRITE_ZEROES, APPEND, SEND) or n % REPORT_EVERY == 0:
            self.states(n, command, about)

    def answers(self, n, command, about):
        (status, result, data), (other_status, other_result, other_data) = (drive.send(command) for drive in self.drives)
        self.statuses[shown(status)] += 1
        if status != other_status:
            self.differences.add(f"status {command.name} {shown(status)} {shown(other_status)}", n, about)
        elif status == 0 and command.opcode in (APPEND, SEND) and result != other_result:
            self.differences.add(f"result {command.name}", n, f"{about}: {result:#x}, {other_result:#x}")
        elif status == 0 and data != other_data:
            if command.opcode == RECEIVE and comparable(data) == comparable(other_data):
                self.counts["pointers.without_meaning"] += 1
                return
            at = next(at for at, pair in enumerate(zip(data, other_data)) if pair[0] != pair[1])
            self.differences.add(
                f"data {command.name}", n, f"{about}: at {at} {data[at:at+16].hex()}, {other_data[at:at+16].hex()}"
            )

    def states(self, n, command, about):
        rows, others = self.reports()
        different = [zone for zone in range(self.zones) if zone_of(rows[zone]) != zone_of(others[zone])]
        if self.is_choice(rows, others, different):
            # Close them all, to bring both drives to one state again.
            self.counts["choices"] += 1
            for zone in different:
                for drive in self.drives:
                    status, _, _ = drive.send(Command("close", SEND, rows[zone][2], 0, CLOSE))
                    assert status == 0, f"zone {zone} cannot be closed: {shown(status)}"
            rows, others = self.reports()
        elif different:
            for zone in different:
                self.differences.add(
                    f"zones {command.name}",
                    n,
                    f"{about}: zone {zone} is {shown_zone(rows[zone])}, {shown_zone(others[zone])}",
                )
            # Later differences would have the same cause.
            for drive in self.drives:
                drive.send(Command("reset-all", SEND, 0, 0, RESET | SELECT_ALL))
            rows, others = self.reports()
        self.counts["zones.compared"] += self.zones
        self.commands.rows = rows

    @staticmethod
    def is_choice(rows, others, different):
        """True if the drives differ only in which implicitly open zones they have closed: a drive may close one at any time, and
        chooses the zone to close for another one."""
        conditions = {row[zone][0] for zone in different for row in (rows, others)}
        same = all(rows[zone][1:4] == others[zone][1:4] for zone in different)
        return len(different) > 0 and same and conditions == {2, 4}

    def tell(self, count):
        print(f"sent {count}")
        print("commands", " ".join(f"{name}:{n}" for name, n in sorted(self.sent.items())))
        print("statuses", " ".join(f"{status}:{n}" for status, n in sorted(self.statuses.items())))
        for name, n in sorted(self.counts.items()):
            print(name, n)
        print("end", conditions(self.commands.rows))
        self.differences.tell()


def main():
    twins = Twins(sys.argv[1:3], int(sys.argv[3]))
    count = int(sys.argv[4])
    for n in range(count):
        twins.step(n)
    twins.tell(count)


main()
