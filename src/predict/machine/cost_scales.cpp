#include "predict/machine/cost_scales.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace echelon {
namespace {

/// `efficiency` of `peak`, divided by `scale`.
void slow_down(double& efficiency, double& peak, double scale) {
  efficiency /= scale;
  if (efficiency <= 1) return;
  peak *= efficiency;
  efficiency = 1;
}

void slow_down(DeviceSpec& device, double scale) {
  slow_down(device.memory_efficiency, device.memory_bandwidth, scale);
  device.vector_flops /= scale;
  device.operation_seconds *= scale;
  device.launch_seconds *= scale;
  device.collective_launch_seconds *= scale;
  for (auto& [name, rates] : device.formats) {
    if (rates.attention_efficiency > 0) rates.attention_efficiency = std::min(1.0, rates.attention_efficiency / scale);
    slow_down(rates.matmul.efficiency, rates.peak_flops, scale);
    for (MatmulPoint& point : rates.points) point.flops /= scale;
  }
}

void slow_down(NodeLink& link, double scale) {
  slow_down(link.efficiency, link.bandwidth, scale);
  link.latency_seconds *= scale;
  link.start_seconds *= scale;
  for (CollectiveCurve& curve : link.measured)
    for (double& seconds : curve.seconds) seconds *= scale;
}

void slow_down(HostSpec& host, const CostScales& scales) {
  for (auto& [operation, formats] : host.operations)
    for (auto& [format, curve] : formats)
      for (OperationPoint& point : curve) {
        point.core_seconds *= scales.compute;
        point.busy_seconds *= scales.compute;
        point.shared_seconds *= scales.compute;
      }
  for (auto& [operation, formats] : host.distances)
    for (auto& [format, curve] : formats)
      for (DistancePoint& point : curve) {
        point.busy_seconds *= scales.compute;
        point.shared_seconds *= scales.compute;
      }
  if (host.operations.empty()) {  // rates stand in for curves
    host.core = host.core * (1 / scales.compute);
    host.device = host.device * (1 / scales.compute);
  }
  for (auto& [transport, operations] : host.collectives)
    for (auto& [operation, points] : operations)
      for (CollectivePoint& point : points) point.seconds *= scales.communication;
  host.all_reduce_latency_seconds *= scales.communication;
  host.all_reduce_bandwidth /= scales.communication;
}

// Of the two logarithms towards each other: (5 % of noise in a step / they differ by about 1)^2.
constexpr double pull = 0.003;
constexpr int num_rounds = 8;        // of Newton's steps
constexpr double furthest = 2;       // a step changes no scale by more than e^2
constexpr double difference = 0.05;  // of the logarithm of a scale, for the derivatives

/// The next logarithms of the scales.
CostScales improved(const CostScales& at, const std::vector<double>& measured, const ScaledSeconds& predicted) {
  const std::vector<double> here = predicted(at);
  const std::vector<double> slower_compute = predicted({at.compute * std::exp(difference), at.communication});
  const std::vector<double> slower_communication = predicted({at.compute, at.communication * std::exp(difference)});
  const double apart = std::log(at.compute / at.communication);
  // Normal equations of sum (r + s du + t dv)^2 + pull (apart + du - dv)^2.
  double uu = pull, uv = -pull, vv = pull, u = -pull * apart, v = pull * apart;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const double r = std::log(here[i] / measured[i]);
    const double s = std::log(slower_compute[i] / here[i]) / difference,
                 t = std::log(slower_communication[i] / here[i]) / difference;
    uu += s * s;
    uv += s * t;
    vv += t * t;
    u -= s * r;
    v -= t * r;
  }
  const double determinant = uu * vv - uv * uv;
  if (determinant <= 0) return at;
  const auto step = [&](double change) { return std::exp(std::clamp(change / determinant, -furthest, furthest)); };
  return {at.compute * step(u * vv - v * uv), at.communication * step(v * uu - u * uv)};
}

/// The factor of all predictions that makes their mean relative error least: sum |factor w - 1| is least at the median
/// of 1/w weighted by w, where w = predicted / measured.
double best_factor(const std::vector<double>& predicted, const std::vector<double>& measured) {
  std::vector<double> weights;
  for (std::size_t i = 0; i < measured.size(); ++i) weights.push_back(predicted[i] / measured[i]);
  std::sort(weights.begin(), weights.end(), std::greater());  // so 1/w ascends
  double rest = std::accumulate(weights.begin(), weights.end(), 0.0) / 2;
  for (const double weight : weights)
    if ((rest -= weight) <= 0) return 1 / weight;
  return 1;
}

}  // namespace

MachineSpec scaled(MachineSpec machine, const CostScales& scales) {
  for (NodeSpec& node : machine.nodes) {
    slow_down(node.device, scales.compute);
    slow_down(node.link, scales.communication);
    slow_down(machine.network.efficiency, node.nic_bandwidth, scales.communication);
  }
  machine.network.latency_seconds *= scales.communication;
  if (machine.host) slow_down(*machine.host, scales);
  return machine;
}

CostScales fit_cost_scales(const std::vector<double>& measured, const ScaledSeconds& predicted) {
  CostScales at, best;
  double least = mean_relative_error(predicted(best), measured);
  for (int round = 0; round < num_rounds; ++round) {
    at = improved(at, measured, predicted);
    const double error = mean_relative_error(predicted(at), measured);
    if (error < least) {
      least = error;
      best = at;
    }
  }
  // One step that took far longer than the others pulls the logarithms away from all others. The best factor for all
  // steps does not follow it.
  const double factor = best_factor(predicted({}), measured);
  at = {factor, factor};
  return mean_relative_error(predicted(at), measured) < least ? at : best;
}

double mean_relative_error(const std::vector<double>& predicted, const std::vector<double>& measured) {
  double sum = 0;
  for (std::size_t i = 0; i < measured.size(); ++i) sum += std::abs(predicted[i] / measured[i] - 1);
  return measured.empty() ? 0 : sum / static_cast<double>(measured.size());
}

}  // namespace echelon
