// Attention as graphs of cuDNN's, through its header-only frontend. cuDNN itself is loaded when a rank starts, and not
// linked: without it everything runs on our own kernels.
#include "cuda/ops/cudnn_attention.h"

#include "base/error.h"
#include "cuda/ops/attention_sizes.h"

#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <map>
#include <tuple>
#include <unordered_map>

// The frontend finds cuDNN's functions here.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace echelon::cuda {
namespace {

namespace fe = cudnn_frontend;

/// The operands' names in a graph.
enum Operand : std::int64_t { q = 1, k, v, out, lse, dout, dq, dk, dv };

/// What a plan is made for. num_sequences: of one launch, with so many bytes of memory in addition to the operands.
struct PlanKey {
  bool is_backward;
  // kv_row: values from one key of a head to its next.
  std::int64_t room_bytes, num_sequences, Tq, Tk, H, num_kv_heads, kv_row, C;
  double scale;
  auto operator<=>(const PlanKey&) const = default;
};

/// Memory in addition to the operands.
struct Room {
  std::byte* begin;
  std::int64_t num_bytes;
};

using TensorAttributes = std::shared_ptr<fe::graph::Tensor_attributes>;

class Plan {
 public:
  Plan(cudnnHandle_t handle, const PlanKey& key, bool deterministic) : key_(key) {
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    key.is_backward ? describe_backward(deterministic) : describe_forward();
    is_good_ = build(handle);
  }
  /// Runs on this device, in the room.
  [[nodiscard]] bool is_good() const { return is_good_; }
  [[nodiscard]] std::int64_t workspace_bytes() const { return graph_.get_workspace_size(); }
  [[nodiscard]] bool run(cudnnHandle_t handle, std::unordered_map<std::int64_t, void*>& operands, void* workspace) {
    return graph_.execute(handle, operands, workspace).is_good();
  }

 private:
  using Dims = std::vector<std::int64_t>;
  [[nodiscard]] Dims query_dims() const { return {key_.num_sequences, key_.H, key_.Tq, key_.C}; }
  [[nodiscard]] Dims query_strides() const { return {key_.Tq * key_.H * key_.C, key_.C, key_.H * key_.C, 1}; }
  [[nodiscard]] Dims key_dims() const { return {key_.num_sequences, key_.num_kv_heads, key_.Tk, key_.C}; }
  [[nodiscard]] Dims key_strides() const { return {key_.Tk * key_.kv_row, key_.C, key_.kv_row, 1}; }
  [[nodiscard]] Dims row_dims() const { return {key_.num_sequences, key_.H, key_.Tq, 1}; }
  [[nodiscard]] Dims row_strides() const { return {key_.H * key_.Tq, key_.Tq, 1, 1}; }

  TensorAttributes input(Operand operand, const Dims& dims, const Dims& strides,
                         fe::DataType_t type = fe::DataType_t::BFLOAT16) {
    return graph_.tensor(
        fe::graph::Tensor_attributes().set_uid(operand).set_dim(dims).set_stride(strides).set_data_type(type));
  }
  static void output(const TensorAttributes& tensor, Operand operand, const Dims& dims, const Dims& strides,
                     fe::DataType_t type = fe::DataType_t::BFLOAT16) {
    tensor->set_output(true).set_uid(operand).set_dim(dims).set_stride(strides).set_data_type(type);
  }
  /// Query i sees the keys up to i + (Tk - Tq).
  template <class Options>
  [[nodiscard]] Options options(const char* name) const {
    Options options;
    options.set_name(name)
        .set_attn_scale(static_cast<float>(key_.scale))
        .set_diagonal_alignment(key_.Tq == key_.Tk ? fe::DiagonalAlignment_t::TOP_LEFT
                                                   : fe::DiagonalAlignment_t::BOTTOM_RIGHT)
        .set_diagonal_band_right_bound(0);
    return options;
  }

  /// The first plan of the heuristics that gets by with the room.
  [[nodiscard]] bool build(cudnnHandle_t handle) {
    if (graph_.validate().is_bad() || graph_.build_operation_graph(handle).is_bad() ||
        graph_.create_execution_plans({fe::HeurMode_t::A}).is_bad())
      return false;
    graph_.deselect_workspace_greater_than(key_.room_bytes);
    return graph_.check_support().is_good() && graph_.build_plans().is_good() && workspace_bytes() <= key_.room_bytes;
  }

  void describe_forward() {
    const TensorAttributes of_q = input(q, query_dims(), query_strides()), of_k = input(k, key_dims(), key_strides()),
                           of_v = input(v, key_dims(), key_strides());
    const auto [of_out, of_lse] =
        graph_.sdpa(of_q, of_k, of_v, options<fe::graph::SDPA_attributes>("attention").set_generate_stats(true));
    output(of_out, out, query_dims(), query_strides());
    output(of_lse, lse, row_dims(), row_strides(), fe::DataType_t::FLOAT);
  }
  void describe_backward(bool deterministic) {
    const TensorAttributes of_q = input(q, query_dims(), query_strides()), of_k = input(k, key_dims(), key_strides()),
                           of_v = input(v, key_dims(), key_strides()),
                           of_out = input(out, query_dims(), query_strides()),
                           of_dout = input(dout, query_dims(), query_strides()),
                           of_lse = input(lse, row_dims(), row_strides(), fe::DataType_t::FLOAT);
    const auto [of_dq, of_dk, of_dv] = graph_.sdpa_backward(
        of_q, of_k, of_v, of_out, of_dout, of_lse,
        options<fe::graph::SDPA_backward_attributes>("attention_backward").set_deterministic_algorithm(deterministic));
    output(of_dq, dq, query_dims(), query_strides());
    output(of_dk, dk, key_dims(), key_strides());
    output(of_dv, dv, key_dims(), key_strides());
  }

  PlanKey key_;
  fe::graph::Graph graph_;
  bool is_good_ = false;
};

class LoadedCudnn final : public CudnnAttention {
 public:
  LoadedCudnn(cudnnHandle_t handle, const Workspace& workspace, bool deterministic)
      : handle_(handle), workspace_(workspace), deterministic_(deterministic) {}
  ~LoadedCudnn() override {
    plans_.clear();
    fe::detail::destroy_handle(handle_);
  }
  LoadedCudnn(const LoadedCudnn&) = delete;
  LoadedCudnn& operator=(const LoadedCudnn&) = delete;

  [[nodiscard]] std::int64_t attention(const AttentionArgs& args, cudaStream_t stream) override {
    const AttentionSizes sizes = sizes_of(args);
    if (args.q.dtype != DType::bfloat16 || args.q.num_elements() == 0 || sizes.Tk < sizes.Tq ||
        !is_of_whole_rows(sizes))
      return 0;
    if (!reads_whole_groups(sizes)) return 0;
    return run({key_of(sizes, args.scale, false), own_room(), stream},
               {{q, args.q}, {k, args.k}, {v, args.v}, {out, args.out}, {lse, args.lse}}, sizes);
  }
  [[nodiscard]] std::int64_t attention_backward(const AttentionBackwardArgs& args, cudaStream_t stream) override {
    const AttentionSizes sizes = sizes_of(args);
    if (args.q.dtype != DType::bfloat16 || args.q.num_elements() == 0 || sizes.Tq != sizes.Tk ||
        !is_of_whole_rows(sizes))
      return 0;
    if (!reads_whole_groups(sizes)) return 0;
    if (sizes.H / sizes.group != sizes.K) return 0;  // dk and dv of heads that no query head reads are zeros
    return run({key_of(sizes, args.scale, true), larger(own_room(), room_in(args.scratch)), stream},
               {{q, args.q},
                {k, args.k},
                {v, args.v},
                {out, args.out},
                {lse, args.lse},
                {dout, args.dout},
                {dq, args.dq},
                {dk, args.dk},
                {dv, args.dv}},
               sizes);
  }
  [[nodiscard]] std::string name() const override {
    const std::size_t version = fe::detail::get_backend_version();  // 91300: 9.13.0
    return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }

 private:
  struct NamedTensor {
    Operand name;
    Tensor tensor;
  };

  /// Of one document each, up to the last key: other masks are our kernels'.
  [[nodiscard]] static bool is_of_whole_rows(const AttentionSizes& sizes) {
    return sizes.starts == nullptr && sizes.diagonal == sizes.Tk - sizes.Tq;
  }
  /// cuDNN divides the heads evenly among kv heads, from the first on.
  [[nodiscard]] static bool reads_whole_groups(const AttentionSizes& sizes) {
    return sizes.first_head % sizes.group == 0 && sizes.H % sizes.group == 0;
  }
  [[nodiscard]] static PlanKey key_of(const AttentionSizes& sizes, double scale, bool is_backward) {
    return {is_backward,       0,       sizes.B, sizes.Tq, sizes.Tk, sizes.H, sizes.H / sizes.group,
            sizes.K * sizes.C, sizes.C, scale};
  }

  [[nodiscard]] Room own_room() const { return {workspace_.as<std::byte>(Workspace::num_bytes), Workspace::num_bytes}; }
  /// Its part from an address on that is aligned as well as the workspace's; of one size for all scratch of a shape,
  /// whatever its address.
  [[nodiscard]] static Room room_in(const Tensor& scratch) {
    if (!scratch.exists()) return {nullptr, 0};
    constexpr std::uintptr_t alignment = 256;
    const std::uintptr_t skipped = -reinterpret_cast<std::uintptr_t>(scratch.data) % alignment;
    return {scratch.data + skipped, scratch.num_bytes() - static_cast<std::int64_t>(alignment)};
  }
  [[nodiscard]] static Room larger(const Room& a, const Room& b) { return a.num_bytes >= b.num_bytes ? a : b; }

  struct Call {
    PlanKey key;
    Room room;
    cudaStream_t stream;
  };

  /// The sequences of one launch; 0 if cuDNN refuses.
  [[nodiscard]] std::int64_t run(Call call, const std::vector<NamedTensor>& operands, const AttentionSizes& sizes) {
    PlanKey& key = call.key;
    key.room_bytes = call.room.num_bytes;
    const PlanKey all = key;
    Plan* const plan = plan_for(key);
    if (plan == nullptr || fe::detail::set_stream(handle_, call.stream) != CUDNN_STATUS_SUCCESS) return 0;
    for (std::int64_t b = 0; b < sizes.B; b += key.num_sequences) {
      std::unordered_map<std::int64_t, void*> addresses;
      for (const auto& [name, tensor] : operands) {
        const bool has_kv_heads = name == k || name == v || name == dk || name == dv;
        const std::int64_t first = has_kv_heads ? sizes.first_head / sizes.group * sizes.C : 0;
        addresses[name] = tensor.data + (tensor.num_elements() / sizes.B * b + first) * size_of(tensor.dtype);
      }
      if (plan->run(handle_, addresses, call.room.begin)) continue;
      if (b > 0) throw Failure("cuDNN computed the attention of some sequences and not of others");
      chosen_[all] = 0;
      return 0;
    }
    return key.num_sequences;
  }

  /// For as many sequences at once as the room allows, which becomes key.num_sequences; null if cuDNN refuses.
  [[nodiscard]] Plan* plan_for(PlanKey& key) {
    const PlanKey all = key;
    if (const auto known = chosen_.find(all); known != chosen_.end()) {
      key.num_sequences = known->second;
      return key.num_sequences == 0 ? nullptr : plans_.at(key).get();
    }
    std::unique_ptr<Plan> plan = make_plan(key);
    if (!plan && all.num_sequences > 1) plan = plan_of_fewer(key);
    chosen_[all] = plan ? key.num_sequences : 0;
    return plan ? (plans_[key] = std::move(plan)).get() : nullptr;
  }

  /// One sequence's plan tells how many fit, since what a plan needs grows with them. Few plans are tried: each costs a
  /// while.
  std::unique_ptr<Plan> plan_of_fewer(PlanKey& key) {
    const std::int64_t all = key.num_sequences;
    key.num_sequences = 1;
    std::unique_ptr<Plan> of_one = make_plan(key);
    if (!of_one) return nullptr;
    std::int64_t most = all / 2;
    while (all % most != 0 || most * of_one->workspace_bytes() > key.room_bytes) --most;
    if (most == 1) return of_one;
    key.num_sequences = most;
    if (auto of_most = make_plan(key)) return of_most;
    key.num_sequences = 1;
    return of_one;
  }

  std::unique_ptr<Plan> make_plan(const PlanKey& key) {
    try {
      auto plan = std::make_unique<Plan>(handle_, key, deterministic_);
      return plan->is_good() ? std::move(plan) : nullptr;
    } catch (const std::exception&) {  // the frontend throws where a function of the library is missing
      return nullptr;
    }
  }

  cudnnHandle_t handle_;
  const Workspace& workspace_;
  bool deterministic_;
  std::map<PlanKey, std::unique_ptr<Plan>> plans_;
  std::map<PlanKey, std::int64_t> chosen_;  // sequences at once; 0: refused
};

}  // namespace

std::unique_ptr<CudnnAttention> find_cudnn_attention(const Workspace& workspace, bool deterministic,
                                                     std::string& reason) {
  // Ranks are threads and may come at once; the library stays loaded.
  static void* const library = fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    reason = "libcudnn.so.9 is not found";
    return nullptr;
  }
  try {
    cudnnHandle_t handle = nullptr;
    const cudnnStatus_t status = fe::detail::create_handle(&handle);
    if (status == CUDNN_STATUS_SUCCESS) return std::make_unique<LoadedCudnn>(handle, workspace, deterministic);
    reason = fmt::format("cuDNN does not start ({})", fe::detail::get_error_string(status));
  } catch (const std::exception& exception) {
    reason = fmt::format("cuDNN does not start ({})", exception.what());
  }
  return nullptr;
}

}  // namespace echelon::cuda
