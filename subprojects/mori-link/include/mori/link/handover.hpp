// handover.hpp - open files that one process hands to others of its host when they ask:
// memory to be mapped. A desk listens on an abstract unix socket; whoever knows its
// secret may ask, in bytes whose meaning is the owner's, and gets bytes and at most
// one descriptor, or a refusal. What a group passes to all its ranks goes the way
// of group.hpp instead.
#pragma once

#include <mori/base/clock.hpp>
#include <mori/base/result.hpp>
#include <mori/base/unique_fd.hpp>
#include <mori/link/bytes.hpp>

#include <array>
#include <functional>
#include <memory>

namespace mori::link {

struct desk_address {
  std::array<uint8_t, 16> name{};    // of the socket
  std::array<uint8_t, 32> secret{};  // both sides prove that they know it
};

struct handed {
  byte_vector bytes;
  base::unique_fd fd;  // may be empty
};

inline constexpr size_t max_handover_bytes = 4096;  // of a question, and of an answer

class handover_desk {
 public:
  // Called on the desk's thread, one question at a time. A failure is the refusal: its status and
  // text reach who asked.
  using answerer = std::function<base::result<handed>(byte_span question)>;
  static constexpr size_t max_visitors = 64;  // with a proven identity; the oldest goes
  static constexpr uint64_t patience_ns = 10 * base::ns_per_s;  // between two questions

  static base::result<std::unique_ptr<handover_desk>> open(answerer answer);

  virtual ~handover_desk() = default;
  virtual const desk_address& address() const = 0;
};

// The asking side, with bounded waits on the caller's thread. One question after the other.
class handover_visit {
 public:
  // wake_fd: readable means stop waiting (MORI_E_CANCELLED); -1: none. MORI_E_UNAVAILABLE: nobody
  // has that name here. MORI_E_AUTH: the secret is another one.
  static base::result<std::unique_ptr<handover_visit>> start(const desk_address& at, int wake_fd,
                                                             base::deadline until);
  virtual ~handover_visit() = default;
  virtual base::result<handed> ask(byte_span question, base::deadline until) = 0;
};

}  // namespace mori::link
