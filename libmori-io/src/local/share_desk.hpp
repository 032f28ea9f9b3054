// share_desk.hpp - what an engine hands to peers of its node: descriptors of segments and
// of GPU memory. Each offer has a number and a key of its own, which travel in the memory
// descriptor; withdrawn, it is no more. How the bytes travel: mori/link/handover.hpp.
// Who asks is share_visit below.
#pragma once

#include <mori/link/handover.hpp>

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "wire/crypto.hpp"

namespace mori::io_core::local {

// Whoever has it may ask.
struct invitation {
  link::desk_address desk;
  uint64_t number = 0;
  wire::capability key{};
};
inline constexpr size_t invitation_bytes = 16 + 32 + 8 + 16;
void write(link::byte_writer& out, const invitation& what);
invitation read_invitation(link::byte_reader& in);

class share_desk {
 public:
  // Gives the part of that index. Called on the desk's thread.
  using provider = std::function<base::result<link::handed>(uint32_t index)>;

  static base::result<std::unique_ptr<share_desk>> open();
  ~share_desk();

  invitation offer(provider from);
  // Nothing is handed out: whoever asks learns that the offer stands.
  invitation offer_lease();
  // When it returns the provider is not running and will not run again.
  void withdraw(uint64_t number);
  size_t offer_count() const;

 private:
  struct offered {
    wire::capability key{};
    provider from;
  };
  share_desk() = default;
  base::result<link::handed> answer(link::byte_span question);

  mutable std::mutex lock_;
  std::map<uint64_t, offered> offers_;
  uint64_t last_number_ = 0;
  std::unique_ptr<link::handover_desk> desk_;
};

// Whether what was offered still is.
base::status check_lease(const invitation& from, base::deadline until);

class share_visit {
 public:
  static base::result<share_visit> start(const invitation& from, base::deadline until);
  base::result<link::handed> ask(uint32_t index, base::deadline until);

 private:
  share_visit(const invitation& from, std::unique_ptr<link::handover_visit> visit)
      : from_(from), visit_(std::move(visit)) {}
  invitation from_;
  std::unique_ptr<link::handover_visit> visit_;
};

}  // namespace mori::io_core::local
