// A handshake with somebody who says what the input says, in pieces: nobody is
// proven without the bytes that only a holder of the private key makes. The
// input: a byte of flags, then pieces [size, bytes] of what the other side says.
//   flag 1  the initiator is under test, else the target
//   flag 2  the pieces are not said but changes [offset low, offset high, xor]
//           of the right messages, and a hello's stamp is made right again
//   flag 4  the target refuses
#include "wire_fuzz.hpp"

using namespace mori::io_core::wire;
using mori::link::byte_reader;
using mori::link::byte_vector;

namespace {

// What both sides say with the fixed keys of the samples.
struct transcript {
  samples::ends ends;
  byte_vector hello, answer, confirmation;

  transcript() {
    auto left = ends.initiator();
    auto right = ends.responder();
    const auto copy = [](byte_span bytes) { return byte_vector(bytes.begin(), bytes.end()); };
    hello = copy(left.output());
    fuzz::require(right.on_bytes(hello) && right.open() && right.admit());
    answer = copy(right.output());
    fuzz::require(static_cast<bool>(left.on_bytes(answer)));
    confirmation =
        copy(left.output()).size() == confirmation_bytes ? copy(left.output()) : byte_vector();
    fuzz::require(right.on_bytes(confirmation) && right.done());
  }
};

transcript& known() {
  static transcript made;
  return made;
}

byte_vector joined(const byte_vector& a, const byte_vector& b) {
  byte_vector all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

byte_vector changed(byte_vector bytes, byte_reader& in, bool is_hello) {
  while (in.rest().size() >= 3) {
    const size_t at = in.u16();
    const uint8_t change = in.u8();
    if (at < bytes.size()) bytes[at] ^= std::byte{change};
  }
  if (is_hello) {
    std::array<uint8_t, stamp_bytes> stamp{};
    const byte_span said = byte_span(bytes).first(hello_bytes - stamp_bytes);
    keyed_hash(known().ends.target_key.public_key, "mori-io stamp", {said}, stamp);
    std::memcpy(bytes.data() + said.size(), stamp.data(), stamp.size());
  }
  return bytes;
}

// Hands over all of it, in pieces of the sizes that `in` says.
template <class Side, class Between>
byte_vector feed(Side& side, byte_span bytes, Between between) {
  byte_vector taken;
  while (!bytes.empty() && !side.done()) {
    const auto got = side.on_bytes(bytes);
    if (!got) break;
    fuzz::require(*got <= bytes.size());
    taken.insert(taken.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(*got));
    bytes = bytes.subspan(*got);
    if (!between() || *got == 0) break;
  }
  fuzz::require(taken.size() <= hello_bytes + answer_bytes);
  return taken;
}

void as_target(byte_span said, bool refuses, byte_vector& taken, responder& side) {
  const byte_vector part = feed(side, said, [&] {
    if (!side.wants_open()) return true;
    if (!side.open()) return false;
    fuzz::require(side.asks() && !side.done());
    if (refuses) {
      fuzz::require(static_cast<bool>(side.refuse(MORI_E_AUTH, "no")));
      return false;
    }
    return static_cast<bool>(side.admit());
  });
  taken.insert(taken.end(), part.begin(), part.end());
}

}  // namespace

void fuzz::handshake(byte_span input) {
  if (input.empty() || input.size() > 4096) return;
  const auto flags = static_cast<uint8_t>(input[0]);
  byte_reader in(input.subspan(1));
  const bool is_initiator = (flags & 1) != 0;
  transcript& right = known();
  const byte_vector wanted = is_initiator ? right.answer : joined(right.hello, right.confirmation);
  std::vector<byte_vector> pieces;
  if ((flags & 2) != 0) {
    pieces.push_back(changed(wanted, in, !is_initiator));
  } else {
    while (!in.rest().empty()) {
      const byte_span piece = in.raw(std::min<size_t>(in.u8(), in.rest().size()));
      pieces.emplace_back(piece.begin(), piece.end());
    }
  }
  auto left = right.ends.initiator();
  auto target = right.ends.responder();
  byte_vector taken;
  for (const byte_vector& piece : pieces) {
    if (is_initiator) {
      const byte_vector part = feed(left, piece, [] { return true; });
      taken.insert(taken.end(), part.begin(), part.end());
    } else {
      as_target(piece, (flags & 4) != 0, taken, target);
    }
  }
  const bool done = is_initiator ? left.done() : target.done();
  require(!done || taken == wanted);
  require(!done || is_initiator || (flags & 4) == 0);
}
