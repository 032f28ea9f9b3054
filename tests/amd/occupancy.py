"""How many waves of a kernel fit into a SIMD, from its registers and shared memory.

Rules, for gfx90a, gfx942 and gfx950 alike where no architecture is named ("User Guide for AMDGPU
Backend" of LLVM; AMD's "CDNA3" and "CDNA4" ISA documents):

* A compute unit has 4 SIMDs; a SIMD holds at most 8 waves.
* Vector registers: 512 per lane of a SIMD, for plain and accumulation registers together; a wave
  gets a multiple of 8. Metadata's .vgpr_count is the sum already, with the accumulation registers
  placed at a multiple of 4.
* Scalar registers: 800 in a SIMD, so 8 waves may have 100 each, as the compiler counts; more than
  that, up to the limit, still leaves room for 7. .sgpr_count includes the special ones (VCC,
  FLAT_SCRATCH, XNACK_MASK).
* Shared memory: 64 KiB in a compute unit, given in units of 512 bytes; on gfx950 160 KiB in units
  of 1280 bytes. A block's waves spread over the SIMDs.
"""

import dataclasses

WAVE_LANES = 64
SIMDS = 4
WAVE_LIMIT = 8
VECTOR_REGISTERS, VECTOR_UNIT = 512, 8
SCALAR_REGISTERS, SCALAR_MOST = 800, 112
SHARED = {"gfx90a": (64 << 10, 512), "gfx942": (64 << 10, 512), "gfx950": (160 << 10, 1280)}


def round_up(value, unit):
    return -(-value // unit) * unit


@dataclasses.dataclass
class Occupancy:
    """Waves per SIMD that each resource allows."""

    vector: int
    scalar: int
    shared: int

    @property
    def waves(self):
        return min(self.vector, self.scalar, self.shared)

    def whole_blocks(self, block_lanes):
        """Waves per SIMD when only whole blocks fit, rounded up."""
        waves = -(-block_lanes // WAVE_LANES)
        return -(-(self.waves * SIMDS // waves * waves) // SIMDS)

    @property
    def bound_by(self):
        names = ("vector", "scalar", "shared")
        return [n for n in names if getattr(self, n) == self.waves and self.waves < WAVE_LIMIT]


def waves_by_vector(used):
    return min(WAVE_LIMIT, VECTOR_REGISTERS // max(round_up(used, VECTOR_UNIT), VECTOR_UNIT))


def waves_by_scalar(used):
    return WAVE_LIMIT if used * WAVE_LIMIT <= SCALAR_REGISTERS else SCALAR_REGISTERS // SCALAR_MOST


def waves_by_shared(architecture, shared_bytes, block_lanes):
    total, unit = SHARED[architecture]
    if shared_bytes == 0:
        return WAVE_LIMIT
    blocks = total // round_up(shared_bytes, unit)
    waves = blocks * -(-block_lanes // WAVE_LANES)
    return min(WAVE_LIMIT, -(-waves // SIMDS))


def occupancy(architecture, kernel, block_lanes):
    """From a kernel's metadata, for blocks of so many lanes."""
    return Occupancy(
        waves_by_vector(kernel[".vgpr_count"]),
        waves_by_scalar(kernel[".sgpr_count"]),
        waves_by_shared(architecture, kernel[".group_segment_fixed_size"], block_lanes),
    )
