// A machine with the rates that software reaches on it.
#include "predict/software/software_profile.h"
#include "predict/software/uncertainty.h"

#include "base/error.h"

#include <algorithm>

namespace echelon {
namespace {

/// Of fused attention on Hopper by kernels without its instructions: FlashAttention-2's 35 % of the peak over the
/// 65 % between 3's forward and backward (Shah et al. 2024, arXiv:2407.08608), as in machines/h100.toml.
constexpr double older_attention_on_hopper = 0.35 / 0.65;

/// An estimate: FlashAttention-2 is 1.3 to 2.5 times as fast as FlashAttention in Triton (Dao 2023, arXiv:2307.08691,
/// section 4.1), and this end of it suits llm-foundry's runs.
constexpr double triton_attention = 1 / 1.3;

/// That of the 12 groups of runs to which the common shares were fitted.
constexpr std::string_view measured_software = "Megatron-LM, DeepSpeed, llm-foundry and PyTorch FSDP";

/// `echelon bench` or `echelon tune` measured the device, with Echelon's own kernels.
bool is_measured(const MachineSpec& machine, const DeviceSpec& device) {
  return machine.has_measured_rates || std::any_of(device.formats.begin(), device.formats.end(),
                                                   [](const auto& format) { return !format.second.points.empty(); });
}

/// Shares are at most 1, so rates only fall.
void take_shares(const SoftwareProfile& profile, const Calibration& fit, NodeSpec& node) {
  DeviceSpec& device = node.device;
  // Without a generation attention is Echelon's, by cuDNN.
  const bool is_older = !profile.attends_by_warpgroups && !profile.generation.empty() &&
                        (device.name.starts_with("H100") || device.name.starts_with("H200"));
  device.memory_efficiency = std::min(1.0, device.memory_efficiency * fit.memory_share);
  for (auto& [format, rates] : device.formats) {
    rates.matmul.efficiency *= fit.matmul_share;
    rates.attention_efficiency *= fit.attention_share * (is_older ? older_attention_on_hopper : 1) *
                                  (profile.attends_in_triton ? triton_attention : 1);
  }
  node.link.efficiency = std::min(1.0, node.link.efficiency * fit.link_share);
  node.link.switch_efficiency = std::min(node.link.switch_efficiency, node.link.efficiency);
}

/// What the host of other software costs; and its matmuls are not those that were measured here.
void replace_host(const Calibration& fit, DeviceSpec& device) {
  device.operation_seconds = 0;  // its host issues kernel by kernel
  device.launch_seconds = fit.launch_seconds;
  device.collective_launch_seconds = fit.collective_launch_seconds;
  for (auto& [format, rates] : device.formats) rates.points.clear();
}

}  // namespace

MachineSpec calibrated(const SoftwareProfile& profile, MachineSpec machine) {
  if (profile.is_echelon && (!profile.borrows_rates || machine.host)) return machine;
  const Calibration fit = calibration_of(profile);
  const double own_network = machine.network.efficiency;
  for (NodeSpec& node : machine.nodes) {
    require(!profile.computes_in_fp8 || node.device.formats.contains("float8"),
            "the software profile '{}' multiplies in float8, and the device '{}' has no rates for it (use {})",
            profile.name, node.device.name, profile.name.substr(0, profile.name.find('+')));
    if (profile.is_echelon && is_measured(machine, node.device)) continue;
    take_shares(profile, fit, node);
    if (!profile.is_echelon) replace_host(fit, node.device);
    machine.network.efficiency = std::min(1.0, own_network * fit.network_share);
  }
  return machine;
}

bool has_borrowed_rates(const SoftwareProfile& profile, const MachineSpec& machine) {
  return profile.is_echelon && profile.borrows_rates && !machine.host &&
         !is_measured(machine, machine.nodes.front().device);
}

std::string rates_text(const SoftwareProfile& profile, const MachineSpec& machine) {
  if (machine.host) return "the rates that were measured here";
  if (profile.is_echelon && !profile.borrows_rates) return "the rates of the machine file, which no software reaches";
  if (profile.is_echelon && is_measured(machine, machine.nodes.front().device))
    return "the rates that were measured on it";
  if (!has_own_calibration(profile))
    return fmt::format("the rates that {} have in common on A100 and H100{}", measured_software,
                       profile.is_echelon ? ", since Echelon was not measured on a GPU" : "");
  return fmt::format("the rates that {} reaches", profile.generation);
}

}  // namespace echelon
