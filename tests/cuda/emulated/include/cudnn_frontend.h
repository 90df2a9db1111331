// The part of cudnn-frontend's graphs that Echelon uses, on the host: attention by naive loops in float, whose operands
// are addressed by the dims and strides that a graph was given. What plans need is like the frontend's: forward
// nothing, gradients dq in float32 or, where they are deterministic, 2 bytes for each query and key.
#pragma once

#include "cuda_runtime.h"

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

enum cudnnStatus_t { CUDNN_STATUS_SUCCESS = 0, CUDNN_STATUS_NOT_INITIALIZED = 1 };
struct CudnnContext {
  cudaStream_t stream = nullptr;
};
using cudnnHandle_t = CudnnContext*;

namespace emulated {

/// What cuDNN there is from now on: 92500 is 9.25.0; 0: none (the default).
void set_cudnn_version(int version);
/// What the frontend says from now on when a graph is validated; empty: nothing.
void set_cudnn_error(const std::string& message);
/// Of the workspace of deterministic gradients, for each query and key of a head (2); more, so that small shapes need
/// as much as large ones do.
void set_bytes_per_pair(std::int64_t num_bytes);
/// Graphs that were executed since the process started.
[[nodiscard]] std::int64_t num_cudnn_runs();

}  // namespace emulated

namespace cudnn_frontend {

extern void* cudnn_dlhandle;

struct error_t {
  std::string message = {};
  [[nodiscard]] bool is_good() const { return message.empty(); }
  [[nodiscard]] bool is_bad() const { return !is_good(); }
  [[nodiscard]] std::string get_message() { return message; }
};
enum class DataType_t : std::uint8_t { BFLOAT16, FLOAT };
enum class DiagonalAlignment_t : std::uint8_t { TOP_LEFT, BOTTOM_RIGHT };
enum class HeurMode_t : std::uint8_t { A };

namespace detail {

[[nodiscard]] cudnnStatus_t create_handle(cudnnHandle_t* handle);
cudnnStatus_t destroy_handle(cudnnHandle_t handle);
[[nodiscard]] cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream);
[[nodiscard]] std::size_t get_backend_version();
[[nodiscard]] inline const char* get_error_string(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_NOT_INITIALIZED";
}

}  // namespace detail

namespace graph {

struct Tensor_attributes {
  std::int64_t uid = 0;
  std::vector<std::int64_t> dim, stride;
  DataType_t type = DataType_t::BFLOAT16;
  bool is_output = false;

  Tensor_attributes& set_uid(std::int64_t x) { return uid = x, *this; }
  Tensor_attributes& set_dim(const std::vector<std::int64_t>& x) { return dim = x, *this; }
  Tensor_attributes& set_stride(const std::vector<std::int64_t>& x) { return stride = x, *this; }
  Tensor_attributes& set_data_type(DataType_t x) { return type = x, *this; }
  Tensor_attributes& set_output(bool x) { return is_output = x, *this; }
};

template <class Own>
struct Attention_attributes {
  float scale = 1;
  DiagonalAlignment_t alignment = DiagonalAlignment_t::TOP_LEFT;
  std::optional<std::int64_t> right_bound;

  Own& set_name(const std::string&) { return own(); }
  Own& set_attn_scale(float x) { return scale = x, own(); }
  Own& set_diagonal_alignment(DiagonalAlignment_t x) { return alignment = x, own(); }
  Own& set_diagonal_band_right_bound(std::int64_t x) { return right_bound = x, own(); }

 private:
  Own& own() { return static_cast<Own&>(*this); }
};
struct SDPA_attributes : Attention_attributes<SDPA_attributes> {
  bool has_stats = false;
  SDPA_attributes& set_generate_stats(bool x) { return has_stats = x, *this; }
};
struct SDPA_backward_attributes : Attention_attributes<SDPA_backward_attributes> {
  bool is_deterministic = false;
  SDPA_backward_attributes& set_deterministic_algorithm(bool x) { return is_deterministic = x, *this; }
};

class Graph {
 public:
  using Tensor = std::shared_ptr<Tensor_attributes>;

  Graph& set_io_data_type(DataType_t) { return *this; }
  Graph& set_intermediate_data_type(DataType_t) { return *this; }
  Graph& set_compute_data_type(DataType_t) { return *this; }
  [[nodiscard]] Tensor tensor(const Tensor_attributes& attributes);
  [[nodiscard]] std::tuple<Tensor, Tensor> sdpa(Tensor q, Tensor k, Tensor v, const SDPA_attributes& options);
  [[nodiscard]] std::tuple<Tensor, Tensor, Tensor> sdpa_backward(Tensor q, Tensor k, Tensor v, Tensor out, Tensor dout,
                                                                 Tensor lse, const SDPA_backward_attributes& options);

  [[nodiscard]] error_t validate() const;
  [[nodiscard]] error_t build_operation_graph(cudnnHandle_t) const { return {}; }
  [[nodiscard]] error_t create_execution_plans(std::initializer_list<HeurMode_t>) const { return {}; }
  Graph& deselect_workspace_greater_than(std::int64_t num_bytes) { return most_bytes_ = num_bytes, *this; }
  [[nodiscard]] error_t check_support() const;
  [[nodiscard]] error_t build_plans() const { return {}; }
  [[nodiscard]] std::int64_t get_workspace_size() const;
  [[nodiscard]] error_t execute(cudnnHandle_t handle, std::unordered_map<std::int64_t, void*>& operands,
                                void* workspace) const;

 private:
  [[nodiscard]] Tensor output();
  template <class Options>
  void set_mask(const Tensor_attributes& q, const Tensor_attributes& k, const Options& options);

  std::vector<Tensor> tensors_;  // q, k, v, then out, lse, or out, dout, lse, dq, dk, dv
  float scale_ = 1;
  std::int64_t offset_ = 0;  // of the diagonal
  bool is_backward_ = false, is_deterministic_ = false;
  std::int64_t most_bytes_ = 0;
};

}  // namespace graph
}  // namespace cudnn_frontend
