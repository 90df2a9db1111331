// A process that times matmuls with the kernels of one of OpenBLAS's core types.
#pragma once

#include "ops/cpu/product_choice.h"

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace echelon {

/// What a worker times: the products of a linear layer and of the head, one call of each.
struct ProductJob {
  DType dtype = DType::float32;
  ProductKernels kernels = ProductKernels::own;
  int num_threads = 1;
  std::int64_t num_tokens = 512;
};

class ProductWorker {
 public:
  /// Forks. The calling process has one thread.
  explicit ProductWorker(std::string core_type);
  ~ProductWorker();
  ProductWorker(const ProductWorker&) = delete;
  ProductWorker& operator=(const ProductWorker&) = delete;

  /// Of its OpenBLAS; none if that has not the kernels that were asked for. Throws Failure if the process has failed.
  [[nodiscard]] std::optional<std::string> core_type();
  /// Seconds. The worker sleeps between jobs. Throws Failure if the process has failed.
  [[nodiscard]] double time(const ProductJob& job);

 private:
  template <class T>
  [[nodiscard]] T answer();

  std::string wanted_type_;
  pid_t process_ = -1;
  int link_ = -1;  // a socket
};

}  // namespace echelon
