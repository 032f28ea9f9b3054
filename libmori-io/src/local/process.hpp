// process.hpp - which process this is, so that another one can prove whose memory it
// attaches: a number that may be dealt again, the time at which it began, and a nonce
// at a known address, which nobody else has there. Read attach.hpp next.
#pragma once

#include <mori/base/result.hpp>

#include <sys/types.h>

#include <array>
#include <cstdint>

namespace mori::io_core::local {

struct process_card {
  int32_t pid = 0;
  uint64_t start_time = 0;  // field 22 of /proc/PID/stat: clock ticks since boot
  std::array<uint8_t, 16> boot_id{};
  uint64_t pid_namespace = 0;  // inode of /proc/PID/ns/pid; 0: unknown
  uint64_t nonce_address = 0;
  std::array<uint8_t, 16> nonce{};
  bool operator==(const process_card&) const = default;
};

// Of this process. The nonce's page is made at the first call; a fork()ed child does not inherit
// it and makes its own.
base::result<process_card> own_process();

// MORI_E_NOT_FOUND: there is no such process.
base::result<uint64_t> start_time_of(pid_t pid);
// The field in the text of /proc/PID/stat, whatever the process calls itself; 0: it is no such
// text.
uint64_t parse_start_time(const char* text);

}  // namespace mori::io_core::local
