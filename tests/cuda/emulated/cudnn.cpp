#include "cuda/ops/cudnn_library.h"

#include <cudnn_frontend.h>

#include "tensor/dtype.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

namespace {

std::atomic<int> cudnn_version = 0;
std::atomic<std::int64_t> bytes_per_pair = 2, num_runs = 0;
std::mutex error_mutex;
std::string refusal;

using cudnn_frontend::DataType_t;
using cudnn_frontend::graph::Tensor_attributes;

/// A tensor of a graph and its address.
struct Bound {
  Tensor_attributes of;
  std::byte* data = nullptr;

  [[nodiscard]] std::int64_t size(std::size_t i) const { return of.dim[i]; }
  [[nodiscard]] float get(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t c) const {
    if (of.type == DataType_t::FLOAT) return read<float>(place(b, h, t, c));
    return echelon::to<float>(read<echelon::bfloat16>(place(b, h, t, c)));
  }
  void set(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t c, float x) const {
    if (of.type == DataType_t::FLOAT)
      std::memcpy(data + place(b, h, t, c) * 4, &x, 4);
    else {
      const auto narrow = echelon::to<echelon::bfloat16>(x);
      std::memcpy(data + place(b, h, t, c) * 2, &narrow, 2);
    }
  }

 private:
  [[nodiscard]] std::int64_t place(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t c) const {
    return b * of.stride[0] + h * of.stride[1] + t * of.stride[2] + c * of.stride[3];
  }
  template <class T>
  [[nodiscard]] T read(std::int64_t i) const {
    T x;
    std::memcpy(&x, data + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return x;
  }
};

struct Rule {
  float scale;
  std::int64_t offset;
};

float product(const Bound& a, const Bound& b, std::int64_t batch, std::int64_t h, std::int64_t i, std::int64_t group,
              std::int64_t j) {
  float sum = 0;
  for (std::int64_t c = 0; c < a.size(3); ++c) sum += a.get(batch, h, i, c) * b.get(batch, h / group, j, c);
  return sum;
}

void attend(const std::vector<Bound>& x, Rule rule) {
  const Bound &q = x[0], &k = x[1], &v = x[2], &out = x[3], &lse = x[4];
  const std::int64_t group = q.size(1) / k.size(1);
  for (std::int64_t b = 0; b < q.size(0); ++b)
    for (std::int64_t h = 0; h < q.size(1); ++h)
      for (std::int64_t i = 0; i < q.size(2); ++i) {
        const std::int64_t n = std::min(i + rule.offset + 1, k.size(2));
        std::vector<float> p(static_cast<std::size_t>(n));
        float most = -std::numeric_limits<float>::infinity(), sum = 0;
        for (std::int64_t j = 0; j < n; ++j) {
          float& score = p[static_cast<std::size_t>(j)] = rule.scale * product(q, k, b, h, i, group, j);
          most = std::max(most, score);
        }
        for (float& each : p) sum += each = std::exp(each - most);
        for (std::int64_t c = 0; c < q.size(3); ++c) {
          float y = 0;
          for (std::int64_t j = 0; j < n; ++j) y += p[static_cast<std::size_t>(j)] * v.get(b, h / group, j, c);
          out.set(b, h, i, c, y / sum);
        }
        lse.set(b, h, i, 0, most + std::log(sum));
      }
}

void attend_backward(const std::vector<Bound>& x, Rule rule) {
  const Bound &q = x[0], &k = x[1], &v = x[2], &out = x[3], &dout = x[4], &lse = x[5], &dq = x[6], &dk = x[7],
              &dv = x[8];
  const std::int64_t group = q.size(1) / k.size(1), C = q.size(3);
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  for (std::int64_t b = 0; b < q.size(0); ++b) {
    std::vector<float> sum_dk(at(k.size(1) * k.size(2) * C)), sum_dv(sum_dk.size());
    for (std::int64_t h = 0; h < q.size(1); ++h)
      for (std::int64_t i = 0; i < q.size(2); ++i) {
        std::vector<float> row(at(C));
        const float delta = product(dout, out, b, h, i, 1, i);
        for (std::int64_t j = 0; j < std::min(i + rule.offset + 1, k.size(2)); ++j) {
          const float p = std::exp(rule.scale * product(q, k, b, h, i, group, j) - lse.get(b, h, i, 0));
          const float ds = rule.scale * p * (product(dout, v, b, h, i, group, j) - delta);
          const std::int64_t first = (h / group * k.size(2) + j) * C;
          for (std::int64_t c = 0; c < C; ++c) {
            row[at(c)] += ds * k.get(b, h / group, j, c);
            sum_dk[at(first + c)] += ds * q.get(b, h, i, c);
            sum_dv[at(first + c)] += p * dout.get(b, h, i, c);
          }
        }
        for (std::int64_t c = 0; c < C; ++c) dq.set(b, h, i, c, row[at(c)]);
      }
    for (std::int64_t h = 0; h < k.size(1); ++h)
      for (std::int64_t j = 0; j < k.size(2); ++j)
        for (std::int64_t c = 0; c < C; ++c) {
          dk.set(b, h, j, c, sum_dk[at((h * k.size(2) + j) * C + c)]);
          dv.set(b, h, j, c, sum_dv[at((h * k.size(2) + j) * C + c)]);
        }
  }
}

}  // namespace

namespace emulated {

void set_cudnn_version(int number) { cudnn_version = number; }
std::int64_t num_cudnn_runs() { return num_runs; }
void set_bytes_per_pair(std::int64_t num_bytes) { bytes_per_pair = num_bytes; }
void set_cudnn_error(const std::string& message) {
  const std::scoped_lock lock(error_mutex);
  refusal = message;
}

}  // namespace emulated

namespace echelon::cuda {

void* cudnn_library() { return cudnn_version == 0 ? nullptr : &cudnn_version; }

}  // namespace echelon::cuda

namespace cudnn_frontend {
namespace detail {

cudnnStatus_t create_handle(cudnnHandle_t* handle) {
  *handle = new CudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t destroy_handle(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
std::size_t get_backend_version() { return static_cast<std::size_t>(cudnn_version.load()); }

}  // namespace detail

namespace graph {

Graph::Tensor Graph::tensor(const Tensor_attributes& attributes) {
  return tensors_.emplace_back(std::make_shared<Tensor_attributes>(attributes));
}
Graph::Tensor Graph::output() { return tensors_.emplace_back(std::make_shared<Tensor_attributes>()); }

std::tuple<Graph::Tensor, Graph::Tensor> Graph::sdpa(Tensor q, Tensor k, Tensor v, const SDPA_attributes& options) {
  tensors_ = {q, k, v};
  set_mask(*q, *k, options);
  Tensor out = output();
  return {out, output()};
}

std::tuple<Graph::Tensor, Graph::Tensor, Graph::Tensor> Graph::sdpa_backward(Tensor q, Tensor k, Tensor v, Tensor out,
                                                                             Tensor dout, Tensor lse,
                                                                             const SDPA_backward_attributes& options) {
  tensors_ = {q, k, v, out, dout, lse};
  set_mask(*q, *k, options);
  is_backward_ = true;
  is_deterministic_ = options.is_deterministic;
  Tensor dq = output(), dk = output();
  return {dq, dk, output()};
}

template <class Options>
void Graph::set_mask(const Tensor_attributes& q, const Tensor_attributes& k, const Options& options) {
  scale_ = options.scale;
  offset_ = options.alignment == DiagonalAlignment_t::TOP_LEFT ? 0 : k.dim[2] - q.dim[2];
  if (!options.right_bound) offset_ = k.dim[2];  // all keys
}

// Statistics with gaps are written from 9.12 on and read from 9.26 on.
error_t Graph::validate() const {
  const Tensor_attributes& stats = *tensors_[is_backward_ ? 5 : 4];
  const bool is_packed = stats.stride[1] == stats.dim[2] && stats.stride[0] == stats.dim[1] * stats.dim[2];
  if (cudnn_version < (is_backward_ ? 92600 : 91200) && !is_packed) return {"the stats are not packed"};
  const std::scoped_lock lock(error_mutex);
  return {refusal};
}

error_t Graph::check_support() const {
  return {get_workspace_size() <= most_bytes_ ? "" : "no engine with so little workspace"};
}

// By the frontend's rules for Hopper.
std::int64_t Graph::get_workspace_size() const {
  if (!is_backward_) return 0;
  const Tensor_attributes &q = *tensors_[0], &k = *tensors_[1];
  const std::int64_t heads = q.dim[0] * q.dim[1], quadratic = heads * q.dim[2] * k.dim[2] * bytes_per_pair;
  const char* const limit = std::getenv("CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT");
  const bool is_ordered = cudnn_version >= 92500 && limit != nullptr && quadratic > std::strtoll(limit, nullptr, 10);
  return is_deterministic_ && !is_ordered ? quadratic : heads * q.dim[2] * (q.dim[3] + 1) * 4;
}

error_t Graph::execute(cudnnHandle_t handle, std::unordered_map<std::int64_t, void*>& operands, void* workspace) const {
  std::vector<Bound> bound;
  for (const Tensor& tensor : tensors_) {
    const auto known = operands.find(tensor->uid);
    if (known == operands.end() || tensor->dim.size() != 4) return {"an operand without an address"};
    bound.push_back({*tensor, static_cast<std::byte*>(known->second)});
  }
  ++num_runs;
  const Rule rule = {scale_, offset_};
  const cudaError_t error = emulated::enqueue(
      handle->stream, [bound, rule, workspace, num_bytes = get_workspace_size(), is_backward = is_backward_] {
        if (num_bytes > 0) std::memset(workspace, 0xff, static_cast<std::size_t>(num_bytes));
        is_backward ? attend_backward(bound, rule) : attend(bound, rule);
      });
  return {error == cudaSuccess ? "" : "no kernel can be launched"};
}

}  // namespace graph
}  // namespace cudnn_frontend
