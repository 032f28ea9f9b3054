"""Which function runs an instruction: one of ours (the C files of this folder), or the one that
tinygrad's emulator makes of the instruction's description. Ours come first: they hold what tinygrad
lacks or gets wrong (README.md has the list).

TINYGRAD_TREE names a source tree of tinygrad; it needs a C compiler that CC names, clang by itself.
"""

import ctypes
import dataclasses
import functools
import importlib
import os
import shutil
import sys

TREE = "TINYGRAD_TREE"
ARCHITECTURE = "cdna"  # tinygrad's name for all AMD architectures with 64 lanes in a wave
ARRAY_COUNT = 6

MEMORY_FAMILIES = ("global_", "flat_", "scratch_")
# LDS instructions that touch registers only, and so go wrong nowhere.
LDS_LEFT_TO_TINYGRAD = {"ds_bpermute_b32", "ds_permute_b32", "ds_nop"}
OPERAND_DPP, OPERAND_LITERAL, FIRST_VECTOR = 250, 255, 256
ROW_BROADCASTS = (0x142, 0x143)
APERTURES = range(235, 239)
INDEX_OFF = 0xBF9C0000
VOP1, V_MOV_B32 = 0x3F, 1


class UnsupportedError(Exception):
    """An instruction that nobody here runs as the hardware would."""


@functools.cache
def tinygrad():
    """The emulator module of the tree."""
    tree = os.environ[TREE]
    compiler = next((c for c in ("clang", "clang-22", "clang-19") if shutil.which(c)), "clang")
    os.environ.setdefault("CC", compiler)
    sys.path.insert(0, tree)
    return importlib.import_module("test.mockgpu.amd.emu")


@dataclasses.dataclass
class Step:
    """How one instruction is run: a function and which of the wave's arrays it takes."""

    name: str
    function: int
    arguments: tuple
    keep: object  # what must live as long as the function


class Decoder:
    def __init__(self, library, architecture):
        self.library = library
        # gfx942 has fp8 formats of its own; from gfx950 on they are the OCP ones.
        self.fnuz = architecture != "gfx950"

    def step_at(self, address):
        emulator = tinygrad()
        inst = emulator.decode_inst(ctypes.string_at(address, 16), ARCHITECTURE)
        name = emulator._op_name(inst)
        own = self._own(name.lower(), ctypes.cast(address, ctypes.POINTER(ctypes.c_uint32)))
        if own:
            function = ctypes.cast(own, ctypes.c_void_p).value
            return Step(name, function, tuple(range(ARRAY_COUNT)), own)
        (program, runtime), _ = emulator._decode_at(address, ARCHITECTURE)
        return Step(name, runtime.addr, tuple(program.arg.globals), runtime)

    def _function(self, name):
        return getattr(self.library, f"instruction_{name}", None)

    def _own(self, name, words):
        if name.startswith(MEMORY_FAMILIES):
            return self._required(name, "memory_" + name.split("_", 1)[1])
        if name.startswith("buffer_"):
            return self._required(name, name)
        if name.startswith("ds_") and name not in LDS_LEFT_TO_TINYGRAD:
            return self._required(name, name)
        special = self._special_name(name, words)
        if special:
            return self._required(name, special)
        plain = name.removesuffix("_e32").removesuffix("_e64")
        if plain.startswith("v_cvt") and ("fp8" in plain or "bf8" in plain):
            return self._fp8(name, plain.removesuffix("_sdwa"), words)
        return self._function(name) or self._function(plain)

    def _required(self, name, function_name):
        function = self._function(function_name)
        if function is None:
            raise UnsupportedError(f"{name} is not among the instructions that are emulated")
        return function

    def _special_name(self, name, words):
        """Instructions whose operands decide."""
        word = words[0]
        if name in ("s_mov_b32", "s_mov_b64") and word & 0xFF in APERTURES:
            return f"{name}_aperture"
        if name == "s_set_gpr_idx_on":
            check_indexed_moves(words)
        if name == "v_fmac_f64_e64":
            check_plain_doubles(words)
        if name.startswith("v_") and word >> 31 == 0 and word & 0x1FF == OPERAND_DPP:
            if words[1] >> 8 & 0x1FF not in ROW_BROADCASTS:
                return None
            return "v_mov_b32_row_bcast" if name.startswith("v_mov_b32") else "(row_bcast)"
        return None

    def _fp8(self, name, plain, words):
        if words[0] >> 25 == VOP1 and words[0] & 0x1FF == OPERAND_DPP:
            raise UnsupportedError(f"{name} with DPP is not among the instructions emulated")
        suffix = "_fnuz" if self.fnuz and "scalef32" not in plain else ""
        return self._required(name, plain + suffix)


def check_indexed_moves(words):
    """Between s_set_gpr_idx_on and _off only plain moves are run as a unit."""
    at = 1
    while words[at] != INDEX_OFF:
        word = words[at]
        is_move = word >> 25 == VOP1 and word >> 9 & 0xFF == V_MOV_B32
        if not is_move or word & 0x1FF == OPERAND_LITERAL:
            raise UnsupportedError(f"indexed registers in {word:#010x}: only v_mov_b32 is emulated")
        at += 1


def check_plain_doubles(words):
    """tinygrad drops the addend of this one; ours takes registers without modifiers."""
    first, second = words[1] & 0x1FF, words[1] >> 9 & 0x1FF
    modifiers = words[0] >> 8 & 0x87 or words[1] >> 27
    if first < FIRST_VECTOR or second < FIRST_VECTOR or modifiers:
        raise UnsupportedError("v_fmac_f64 with constants or modifiers is not emulated")
