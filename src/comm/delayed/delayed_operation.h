// One operation of the delayed transport: copies for the inner transport, poison and a watch for the caller.
#pragma once

#include "comm/comm.h"

#include <string>
#include <vector>

namespace echelon {

/// A buffer of the caller and what it must hold until the operation was waited for.
class WatchedBuffer {
 public:
  WatchedBuffer() = default;
  explicit WatchedBuffer(const Tensor& x);
  /// Takes what the buffer holds now as what it must hold.
  void watch();
  /// Throws Failure if it holds something else.
  void check(std::string_view role, const std::string& operation) const;
  void poison();
  void overwrite(const std::vector<std::byte>& bytes);
  [[nodiscard]] std::vector<std::byte> copy() const;

 private:
  Tensor tensor_ = {nullptr, DType::float32, {0}};
  std::vector<std::byte> image_;
};

class DelayedOperation final : public Pending::Operation {
 public:
  /// `in` is read and `out` is written by the operation; either may be empty, and one may are within the other.
  DelayedOperation(std::string name, const Tensor& in, const Tensor& out, int num_late_polls);

  /// What the inner transport is to work on instead. In place (in and out are the same), both are one copy.
  [[nodiscard]] void* in_copy() { return is_in_place_ ? out_copy_.data() : in_copy_.data(); }
  [[nodiscard]] void* out_copy() { return out_copy_.data(); }
  /// Poisons and watches the caller's buffers.
  void started(Pending inner);

  void wait() override;
  bool poll() override;

 private:
  void finish();

  std::string name_;
  bool is_in_place_;
  WatchedBuffer in_, out_;
  std::vector<std::byte> in_copy_, out_copy_;
  int num_late_polls_;
  Pending inner_;  // the last member: it is dropped before the copies that it works on
};

}  // namespace echelon
