#include "comm/delayed/delayed_operation.h"

#include "base/error.h"

#include <algorithm>
#include <cstring>

namespace echelon {

WatchedBuffer::WatchedBuffer(const Tensor& x) : tensor_(x) {}

std::vector<std::byte> WatchedBuffer::copy() const { return {tensor_.data, tensor_.data + tensor_.num_bytes()}; }

void WatchedBuffer::watch() { image_ = copy(); }

void WatchedBuffer::check(std::string_view role, const std::string& operation) const {
  const auto [found, expected] = std::mismatch(tensor_.data, tensor_.data + tensor_.num_bytes(), image_.begin());
  if (expected == image_.end()) return;
  throw Failure(fmt::format("the {} of {} was written before the operation was waited for: element {} of {}", role,
                            operation, (found - tensor_.data) / size_of(tensor_.dtype), tensor_.num_elements()));
}

void WatchedBuffer::poison() {
  // All ones are a NaN in every floating-point format.
  const auto pattern = static_cast<std::byte>(tensor_.dtype == DType::int32 ? 0x7f : 0xff);
  std::fill(tensor_.data, tensor_.data + tensor_.num_bytes(), pattern);
}

void WatchedBuffer::overwrite(const std::vector<std::byte>& bytes) {
  std::copy(bytes.begin(), bytes.end(), tensor_.data);
}

DelayedOperation::DelayedOperation(std::string name, const Tensor& in, const Tensor& out, int num_late_polls)
    : name_(std::move(name)),
      is_in_place_(in.data == out.data && in.num_bytes() == out.num_bytes()),
      in_(in),
      out_(out),
      in_copy_(in_.copy()),
      out_copy_(out_.copy()),
      num_late_polls_(num_late_polls) {}

void DelayedOperation::started(Pending inner) {
  inner_ = std::move(inner);
  if (is_in_place_) in_ = WatchedBuffer();
  out_.poison();
  const bool is_within_out = in_copy_.size() < out_copy_.size();
  if (is_within_out) in_.overwrite(in_copy_);  // an input that is a part of the output stays readable
  in_.watch();
  out_.watch();
}

void DelayedOperation::wait() {
  inner_.wait();
  finish();
}

bool DelayedOperation::poll() {
  if (!inner_.poll() || num_late_polls_-- > 0) return false;
  finish();
  return true;
}

void DelayedOperation::finish() {
  in_.check("input", name_);
  out_.check("output", name_);
  out_.overwrite(out_copy_);
}

}  // namespace echelon
