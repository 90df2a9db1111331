// Operations that go on to another backend: a test overrides what it watches or changes.
#pragma once

#include "ops/ops.h"

namespace echelon {

class ForwardingOps : public Ops {
 public:
  /// It refers to `inner`.
  explicit ForwardingOps(Ops& inner) : inner_(inner) {}
  void perform(const Operation& operation) override { inner_.perform(operation); }
  void upload(Tensor out, const void* host) override { inner_.upload(out, host); }
  void upload_like(Tensor out, const void* host, Tensor like) override { inner_.upload_like(out, host, like); }
  void download(void* host, Tensor x) override { inner_.download(host, x); }
  [[nodiscard]] bool computes_values() const override { return inner_.computes_values(); }
  [[nodiscard]] std::byte* host_address(const Tensor& x) const override { return inner_.host_address(x); }
  void publish() override { inner_.publish(); }
  void finish() override { inner_.finish(); }

 protected:
  [[nodiscard]] Ops& inner() const { return inner_; }

 private:
  Ops& inner_;
};

}  // namespace echelon
