#include "predict/software/uncertainty.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>

namespace echelon {
namespace {

struct Spread {
  double Calibration::*share;
  double spread;
};

constexpr Spread spreads[] = {
    {&Calibration::matmul_share, 0.071}, {&Calibration::attention_share, 0.118}, {&Calibration::memory_share, 0.058},
    {&Calibration::link_share, 0.161},   {&Calibration::network_share, 0.183},
};

/// Factors of rates, in a fixed order.
class Draw {
 public:
  explicit Draw(int number) : random_(static_cast<std::mt19937::result_type>(number)) {}
  double factor(double Calibration::*share) {
    // The engine is the same everywhere, the distributions of the standard library are not.
    const double uniform = static_cast<double>(random_()) / static_cast<double>(std::mt19937::max());
    return std::exp(std::sqrt(3.0) * (2 * uniform - 1) * spread_of(share));
  }

 private:
  std::mt19937 random_;
};

void scale(double& efficiency, double factor) { efficiency = std::min(1.0, efficiency * factor); }

}  // namespace

double spread_of(double Calibration::*share) {
  const Spread* found =
      std::find_if(std::begin(spreads), std::end(spreads), [&](const Spread& each) { return each.share == share; });
  return found == std::end(spreads) ? 0 : found->spread;
}

MachineSpec drawn(MachineSpec machine, int draw) {
  Draw random(draw);
  const double matmul = random.factor(&Calibration::matmul_share),
               attention = random.factor(&Calibration::attention_share),
               memory = random.factor(&Calibration::memory_share), link = random.factor(&Calibration::link_share),
               network = random.factor(&Calibration::network_share);
  for (NodeSpec& node : machine.nodes) {
    for (auto& [format, rates] : node.device.formats) {
      scale(rates.matmul.efficiency, matmul);
      scale(rates.attention_efficiency, attention);
    }
    scale(node.device.memory_efficiency, memory);
    scale(node.link.efficiency, link);
    scale(node.link.switch_efficiency, link);
  }
  scale(machine.network.efficiency, network);
  return machine;
}

}  // namespace echelon
