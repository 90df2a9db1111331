// Memory for packed panels: a thread's own, kept from one product to the next, in huge pages where the system has them.
#pragma once

#include <cstdint>
#include <memory>

namespace echelon {

class HugeBuffer {
 public:
  // A product's, which all its threads read; a share's; of a product in several passes over k.
  enum Purpose { shared, own, sums, num_purposes };

  [[nodiscard]] static HugeBuffer& of_this_thread(Purpose purpose);

  /// At least `count` numbers, with a vector's room beyond; what was there is lost if it grows.
  [[nodiscard]] float* floats(std::int64_t count);

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<float, Free> memory_;
  std::int64_t size_ = 0;
};

}  // namespace echelon
