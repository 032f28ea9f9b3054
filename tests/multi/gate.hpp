// gate.hpp - stops this process at an exact place inside a library call: at the first touch of
// memory that the call must touch. The memory is made inaccessible, and the fault handler tells
// the driver (through words that both map) and waits there until the driver writes to a pipe.
// So "in the middle of the payload" is a place and not a matter of luck, and the library needs no
// test hook. Read gate.cpp next.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace multi {

// The start of the file that the driver maps too; processes.py knows the layout.
struct control_line {
  std::atomic<uint64_t> call_count;   // library calls begun
  std::atomic<uint64_t> round_count;  // complete dispatch + combine pairs of a loop
  std::atomic<uint64_t> phase;        // 1 in dispatch, 2 between, 3 in combine, 0 elsewhere
  std::atomic<uint64_t> gate_reached;
  uint64_t reserved[4];
};
static_assert(sizeof(control_line) == 64);

// Maps the line and installs the handler, which waits at gate_pipe. False: not possible.
bool open_control(const char* path, int gate_pipe);
control_line& control();

// Makes whole pages within [start, start + bytes) a gate; one at a time.
bool close_gate(void* start, size_t bytes);
// After the call: the memory is plain again, whether the gate was reached or not.
void remove_gate();

}  // namespace multi
