#include "backend/cpu_backend.h"

#include "backend/agreed_products.h"
#include "ops/cpu/cpu_ops.h"

namespace echelon {
namespace {

class CpuDevice final : public RankDevice {
 public:
  CpuDevice(Mesh& mesh, const RankOptions& options, const std::string& remark)
      : products_(agreed_products(mesh, options.products)),
        ops_(make_cpu_ops({.num_threads = options.num_threads, .products = products_.choice})),
        mesh_(mesh),
        remark_(remark) {}
  [[nodiscard]] Ops& ops() override { return *ops_; }
  [[nodiscard]] Mesh& mesh() override { return mesh_; }
  [[nodiscard]] MemorySpace& memory() override { return host_memory(); }
  [[nodiscard]] std::string description() const override { return describe_products(products_) + remark_; }
  [[nodiscard]] DeviceFacts facts() const override { return {.name = "processor", .multiplies_float8 = true}; }
  [[nodiscard]] ProductNames products() const override { return names_of(products_.choice); }
  [[nodiscard]] std::vector<std::string> notes() const override { return products_.notes; }

 private:
  ChosenProducts products_;
  std::unique_ptr<Ops> ops_;
  Mesh& mesh_;
  const std::string& remark_;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(std::string remark) : remark_(std::move(remark)) {}
  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::cpu; }
  [[nodiscard]] int num_devices() const override { return 1; }
  [[nodiscard]] std::unique_ptr<RankDevice> open(Mesh& host, const RankOptions& options) override {
    require(options.backend != CommBackend::nccl,
            "comm.backend = nccl needs GPUs, but this run computes on CPUs (use auto)");
    return std::make_unique<CpuDevice>(host, options, remark_);
  }

 private:
  std::string remark_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(std::string remark) {
  return std::make_unique<CpuBackend>(std::move(remark));
}

}  // namespace echelon
