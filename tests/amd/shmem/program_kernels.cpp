// program_kernels.cpp - entry points of program.hpp, compiled for the host and for
// the AMD GPUs that the emulator knows.
#include "program.hpp"

MORI_KERNEL(mori_amd_lane_programs, mori::amd_test::program_args, mori::amd_test::lane_programs);
MORI_KERNEL(mori_amd_wave_programs, mori::amd_test::program_args, mori::amd_test::wave_programs);
MORI_KERNEL(mori_amd_block_programs, mori::amd_test::program_args, mori::amd_test::block_programs);
