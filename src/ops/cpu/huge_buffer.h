// Memory for packed panels: a thread's own, kept from one matmul to the next, in huge pages where the system has them.
#pragma once

#include <cstdint>
#include <memory>

namespace echelon {

class HugeBuffer {
 public:
  // The buffer of a matmul, which all its threads read; of a share; of a matmul in several passes over k.
  enum Purpose { shared, own, sums, num_purposes };

  [[nodiscard]] static HugeBuffer& of_this_thread(Purpose purpose);

  /// At least `count` values, with a vector's room beyond; what was there is lost if it grows.
  [[nodiscard]] float* floats(std::int64_t count);

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<float, Free> memory_;
  std::int64_t size_ = 0;
};

}  // namespace echelon
