// wire_seeds.cpp - writes what the fuzz targets start from: one good input of
// each kind, so that mutations reach behind the first checks.
// usage: io_wire_seeds FOLDER   (makes FOLDER/descriptor, handshake, frame)
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "samples.hpp"
#include "wire/message.hpp"

using namespace mori::io_core::wire;
using mori::link::byte_vector;
using mori::link::byte_writer;

namespace {

class corpus {
 public:
  corpus(const std::filesystem::path& root, const char* target) : folder_(root / target) {
    std::filesystem::create_directories(folder_);
  }
  void add(const char* name, std::initializer_list<uint8_t> head, byte_span rest = {}) {
    std::ofstream out(folder_ / name, std::ios::binary);
    for (const uint8_t byte : head) out.put(static_cast<char>(byte));
    out.write(reinterpret_cast<const char*>(rest.data()),
              static_cast<std::streamsize>(rest.size()));
    good_ = good_ && out.good();
  }
  bool good() const { return good_; }

 private:
  std::filesystem::path folder_;
  bool good_ = true;
};

bool descriptors(const std::filesystem::path& root) {
  corpus to(root, "descriptor");
  const byte_vector engine = *pack(samples::engine());
  const byte_vector memory = *pack(samples::memory());
  to.add("engine", {0}, engine);
  to.add("memory", {1}, memory);
  to.add("engine-body", {2}, byte_span(engine).subspan(12, engine.size() - 20));
  to.add("memory-body", {3}, byte_span(memory).subspan(12, memory.size() - 20));
  return to.good();
}

bool handshakes(const std::filesystem::path& root) {
  corpus to(root, "handshake");
  samples::ends e;
  auto left = e.initiator();
  auto right = e.responder();
  const auto in_pieces = [](byte_span bytes) {
    byte_writer out;
    while (!bytes.empty()) {
      const size_t size = std::min<size_t>(bytes.size(), 200);
      out.u8(static_cast<uint8_t>(size));
      out.raw(bytes.first(size));
      bytes = bytes.subspan(size);
    }
    return out.take();
  };
  const byte_vector hello(left.output().begin(), left.output().end());
  if (!right.on_bytes(hello) || !right.open() || !right.admit()) return false;
  to.add("answer", {1}, in_pieces(right.output()));
  if (!left.on_bytes(right.output())) return false;
  byte_vector all = hello;
  const byte_span confirmation = left.output();
  all.insert(all.end(), confirmation.end() - confirmation_bytes, confirmation.end());
  to.add("hello", {0}, in_pieces(all));
  to.add("refused", {4}, in_pieces(all));
  to.add("changed-hello", {2, 8, 0, 1});
  to.add("changed-confirmation", {2, 0x38, 1, 1});
  to.add("changed-answer", {3, 8, 0, 1});
  to.add("unchanged", {2});
  return to.good();
}

bool frames(const std::filesystem::path& root) {
  corpus to(root, "frame");
  byte_vector room(max_body_bytes);
  const auto message = [&](const char* name, message_kind kind, size_t size, uint8_t payload = 0) {
    const auto number = static_cast<uint8_t>(kind);
    to.add(name, {1, number, frame_flags(kind), payload, 0, 0, 0}, byte_span(room).first(size));
  };
  const std::string note = "metadata";
  for (const auto kind : {message_kind::write, message_kind::read, message_kind::notify}) {
    slice what;
    what.sequence = what.floor = 1;
    what.operation = kind == message_kind::read ? 1 : 2;
    what.total_bytes = 100;
    what.metadata = mori::link::as_bytes(note);
    slice_writer writer;
    if (!writer.start(room, kind, what)) return false;
    (void)writer.add(0, 60), (void)writer.add(512, 40);
    message(name_of(kind), kind, writer.finish(), kind == message_kind::write ? 100 : 0);
    if (kind != message_kind::write || !writer.start(room, kind, what)) continue;
    (void)writer.add(0, 100);
    size_t size = 0;
    (void)writer.finish_inline(size);
    message("write-inline", kind, size);
  }
  const outcome done[] = {{1, MORI_OK}, {2, MORI_E_INVALID}};
  const std::byte bits[] = {std::byte{1}};
  message("data", message_kind::data,
          encode(room, data{1, 0, 0, 5, mori::link::as_bytes("bytes")}));
  message("ack", message_kind::ack, encode_ack(room, done));
  message("resume", message_kind::resume, encode(room, resume{1, 1, 3}));
  message("resume-answer", message_kind::resume_answer,
          encode(room, resume_answer{1, 1, 2, true, bits, {}}, std::span(done).last(1)));
  message("heartbeat", message_kind::heartbeat, encode(room, heartbeat{true, 1, 2, 3}));
  message("cancel", message_kind::cancel, encode_cancel(room, 1));
  message("cancel-answer", message_kind::cancel_answer,
          encode(room, cancel_answer{1, cancel_outcome::failed, MORI_E_INVALID}));
  message("revoke", message_kind::revoke, encode_revoke(room, 1));
  message("attach", message_kind::attach, encode(room, attach{{}, 1, 2}));
  message("error", message_kind::error, encode(room, error_message{1, MORI_E_OS, "text"}));

  sealer out(samples::counting(2), security_mode::mac);
  to.add("stranger", {0}, out.seal(byte_room(room).first(72), {40, 0, 1, frame_masked}));
  for (const uint8_t mode : {0, 1, 2}) {
    const std::string name = "stream-" + std::to_string(mode);
    to.add(name.c_str(), {2, mode, 0x48, 0, 1});
  }
  return to.good();
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fputs("usage: io_wire_seeds FOLDER\n", stderr);
    return 2;
  }
  const std::filesystem::path root = arguments[1];
  return descriptors(root) && handshakes(root) && frames(root) ? 0 : 1;
}
