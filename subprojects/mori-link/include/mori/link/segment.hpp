// segment.hpp - memory that several processes map: a memfd, or an unlinked file
// in a directory of the user's choice (a tmpfs with a size, hugetlbfs). Address
// space is taken at once, pages only by reserve(), so that a full tmpfs is a
// status and never a SIGBUS.
#pragma once

#include <mori/base/result.hpp>
#include <mori/base/unique_fd.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace mori::link {

class segment {
 public:
  // directory empty: memfd. The file's size is set, no page is taken.
  static base::result<base::unique_fd> create_file(uint64_t size_bytes,
                                                   const std::string& directory);

  // Maps size_bytes of the file shared and writable, at a multiple of
  // alignment_bytes (a power of two, at least a page); keeps the descriptor.
  static base::result<segment> map(base::unique_fd fd, uint64_t size_bytes,
                                   uint64_t alignment_bytes = 4096);

  segment() = default;
  segment(segment&& other) noexcept;
  segment& operator=(segment&& other) noexcept;
  ~segment();

  // Nobody can make the file shorter from now on, under whom it would be a SIGBUS. Only memfds.
  base::status seal();
  // Whether that is so of a file that came from elsewhere.
  static bool is_sealed(int fd);

  std::byte* data() const { return data_; }
  int descriptor() const { return fd_.get(); }
  uint64_t size_bytes() const { return size_bytes_; }

  // Takes the pages of [offset, offset + bytes), zeroed where new.
  // MORI_E_NO_MEMORY says how much was asked for and is free; also short of a
  // limit beyond which the kernel would rather end a process. A failure leaves
  // no page of the range.
  base::status reserve(uint64_t offset, uint64_t bytes);
  // Gives whole pages inside the range back; they read as zero afterwards.
  base::status release(uint64_t offset, uint64_t bytes);
  // Lets this process touch the pages of the range, or makes a touch a SIGSEGV; in this mapping
  // alone. Both ends on pages, but for the end of the segment.
  base::status allow(uint64_t offset, uint64_t bytes, bool access);

 private:
  std::byte* data_ = nullptr;
  uint64_t size_bytes_ = 0;
  base::unique_fd fd_;
};

}  // namespace mori::link
