// io_kernels.cpp - entry points of io's kernels, compiled once for each processor and
// instruction set.
#include "copy_pieces.hpp"

MORI_KERNEL(mori_io_copy_pieces, mori::io_core::copy_pieces_args, mori::io_core::copy_pieces);
