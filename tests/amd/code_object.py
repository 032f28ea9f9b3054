"""An AMD code object as a file: sections, symbols, the metadata of its kernels, the compiler that
made it. Nothing here loads or runs it; see emulator/loader.py for that, disassembly.py for its
instructions.

Sources of the numbers: the ELF specification, and "User Guide for AMDGPU Backend" of LLVM (code
object version 5) for machine values, notes and metadata.
"""

import dataclasses
import functools
import hashlib
import pathlib
import struct

ELF_MACHINE_AMDGPU = 224
ARCHITECTURES = {0x3F: "gfx90a", 0x4C: "gfx942", 0x4F: "gfx950"}  # of e_flags
SECTION_RELOCATIONS, SECTION_NOTES, SECTION_DYNAMIC_SYMBOLS = 4, 7, 11
SEGMENT_LOAD = 1
NOTE_METADATA = 32

# First byte -> (kind, how many low bits of it are the length).
_SHORT = [(0x80, 0x8F, "map", 0x0F), (0x90, 0x9F, "list", 0x0F), (0xA0, 0xBF, "text", 0x1F)]
# First byte -> (kind, bytes of the length or value that follow).
_LONG = {
    0xC4: ("text", 1),
    0xCC: ("integer", 1),
    0xCD: ("integer", 2),
    0xCE: ("integer", 4),
    0xCF: ("integer", 8),
    0xD9: ("text", 1),
    0xDA: ("text", 2),
    0xDB: ("text", 4),
    0xDC: ("list", 2),
    0xDD: ("list", 4),
    0xDE: ("map", 2),
    0xDF: ("map", 4),
}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def _message_head(data, at):
    """(kind, length or value, where its contents begin)."""
    first = data[at]
    if first < 0x80:
        return "integer", first, at + 1
    if first in _CONSTANTS:
        return "constant", _CONSTANTS[first], at + 1
    for low, high, kind, mask in _SHORT:
        if low <= first <= high:
            return kind, first & mask, at + 1
    if first not in _LONG:
        raise ValueError(f"metadata: unknown MessagePack type {first:#x}")
    kind, width = _LONG[first]
    return kind, int.from_bytes(data[at + 1 : at + 1 + width], "big"), at + 1 + width


def read_message(data, at=0):
    """The MessagePack value at `at` and where it ends: as much of the format as metadata uses."""
    kind, count, at = _message_head(data, at)
    if kind == "text":
        return data[at : at + count].decode(), at + count
    if kind not in ("map", "list"):
        return count, at
    values = []
    for _ in range(count * 2 if kind == "map" else count):
        value, at = read_message(data, at)
        values.append(value)
    return (dict(zip(values[::2], values[1::2], strict=True)) if kind == "map" else values), at


@dataclasses.dataclass
class Segment:
    """What the loader puts into memory."""

    offset: int
    address: int
    file_bytes: int
    memory_bytes: int


class CodeObject:
    def __init__(self, image, name="code object"):
        self.image, self.name = image, name
        if image[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", image, 18)[0] != (
            ELF_MACHINE_AMDGPU
        ):
            raise ValueError(f"{name} is not a 64-bit ELF file for an AMD GPU")
        flags = struct.unpack_from("<I", image, 48)[0]
        self.architecture = ARCHITECTURES.get(flags & 0xFF, f"unknown ({flags & 0xFF:#x})")
        self.segments, self.sections = self._read_tables()

    @classmethod
    def read(cls, path):
        return cls(pathlib.Path(path).read_bytes(), pathlib.Path(path).name)

    def _read_tables(self):
        headers, sections_at = struct.unpack_from("<QQ", self.image, 32)
        header_count = struct.unpack_from("<H", self.image, 56)[0]
        section_count, names_index = struct.unpack_from("<HH", self.image, 60)
        segments = []
        for i in range(header_count):
            kind, _, *fields = struct.unpack_from("<IIQQQQQQ", self.image, headers + 56 * i)
            if kind == SEGMENT_LOAD:
                segments.append(Segment(fields[0], fields[1], fields[3], fields[4]))
        sections = [
            struct.unpack_from("<IIQQQQIIQQ", self.image, sections_at + 64 * i)
            for i in range(section_count)
        ]
        self._names_at = sections[names_index][4]
        return segments, sections

    def _text_at(self, at):
        return self.image[at : self.image.index(0, at)].decode()

    def _sections(self, kind):
        return [section for section in self.sections if section[1] == kind]

    @property
    def sha256(self):
        return hashlib.sha256(self.image).hexdigest()

    @functools.cached_property
    def compiler(self):
        """What the compiler and the linker left in .comment: other ones give other bytes."""
        for section in self.sections:
            if self._text_at(self._names_at + section[0]) == ".comment":
                text = self.image[section[4] : section[4] + section[5]]
                return ", ".join(sorted({part.decode() for part in text.split(b"\0") if part}))
        return "unknown"

    @functools.cached_property
    def symbols(self):
        """Name -> address, of the dynamic symbols, in the order of their table."""
        found = {}
        for section in self._sections(SECTION_DYNAMIC_SYMBOLS):
            strings = self.sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], 24):
                name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", self.image, at)
                found[self._text_at(strings + name)] = value
        return found

    def relocations(self):
        """Yields (address, type, symbol name, addend)."""
        names = list(self.symbols)
        for section in self._sections(SECTION_RELOCATIONS):
            for at in range(section[4], section[4] + section[5], 24):
                address, information, addend = struct.unpack_from("<QQq", self.image, at)
                yield address, information & 0xFFFFFFFF, names[information >> 32], addend

    @functools.cached_property
    def kernels(self):
        """Kernel name -> its metadata, a dict with keys such as `.vgpr_count`."""
        found = {}
        for section in self._sections(SECTION_NOTES):
            at = section[4]
            while at < section[4] + section[5]:
                name_bytes, note_bytes, kind = struct.unpack_from("<III", self.image, at)
                note = at + 12 + (name_bytes + 3) // 4 * 4
                if kind == NOTE_METADATA:
                    root = read_message(self.image[note : note + note_bytes])[0]
                    found |= {each[".name"]: each for each in root.get("amdhsa.kernels", [])}
                at = note + (note_bytes + 3) // 4 * 4
        return found
