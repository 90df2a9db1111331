// The calling thread's buffer for blocks that an operation widens or keeps between its loops. It grows to the largest
// request, which the operations bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace echelon {

/// Hands out `capacity` values, uninitialised, until it goes out of scope; the memory stays with the thread for the
/// next operation. Not for nesting. Where one is in use already, another Purpose (any type) makes another buffer.
template <class T, class Purpose = void>
class Scratch {
 public:
  explicit Scratch(std::int64_t capacity) {
    static thread_local std::vector<std::byte> buffer;
    // take() rounds up to lines.
    const std::size_t num_bytes = (static_cast<std::size_t>(capacity) * sizeof(T)) + 32 * line_bytes;
    if (buffer.size() < num_bytes) buffer.resize(num_bytes);
    void* address = buffer.data();
    std::size_t space = buffer.size();
    next_ = static_cast<T*>(std::align(line_bytes, num_bytes - line_bytes, address, space));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// At most 28 times. Starts at a cache line.
  [[nodiscard]] T* take(std::int64_t count) {
    T* taken = next_;
    constexpr std::int64_t per_line = line_bytes / sizeof(T);
    next_ += (count + per_line - 1) / per_line * per_line;
    return taken;
  }

 private:
  static constexpr std::size_t line_bytes = 64;
  T* next_ = nullptr;
};

}  // namespace echelon
