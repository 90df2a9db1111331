#include "prediction/median_host.h"

#include "base/median.h"

namespace echelon {
namespace {

template <class Get>
double median_over(const std::vector<HostSpec>& hosts, Get&& get) {
  std::vector<double> values;
  for (const HostSpec& host : hosts) values.push_back(get(host));
  return median(std::move(values));
}

/// Of both tables of points.
template <class Curves, class Point>
void take_medians(Curves HostSpec::*curves, std::initializer_list<double Point::*> members,
                  const std::vector<HostSpec>& hosts, HostSpec& result) {
  for (auto& [table, lists] : result.*curves)
    for (auto& [key, points] : lists)
      for (std::size_t i = 0; i < points.size(); ++i)
        for (const auto member : members)
          points[i].*member = median_over(hosts, [&, table = &table, key = &key](const HostSpec& host) {
            return (host.*curves).at(*table).at(*key).at(i).*member;
          });
}

}  // namespace

HostSpec median_host(const std::vector<HostSpec>& hosts) {
  HostSpec result = hosts.front();
  for (ComputeRates HostSpec::*const rates : {&HostSpec::device, &HostSpec::core})
    for (double ComputeRates::*const rate :
         {&ComputeRates::float32_flops, &ComputeRates::float64_flops, &ComputeRates::bfloat16_flops,
          &ComputeRates::sgemm_flops, &ComputeRates::copy_bandwidth, &ComputeRates::triad_bandwidth,
          &ComputeRates::read_bandwidth})
      result.*rates.*rate = median_over(hosts, [&](const HostSpec& host) { return host.*rates.*rate; });
  take_medians(&HostSpec::operations,
               {&OperationPoint::core_seconds, &OperationPoint::busy_seconds, &OperationPoint::shared_seconds}, hosts,
               result);
  take_medians(&HostSpec::distances, {&DistancePoint::busy_seconds, &DistancePoint::shared_seconds}, hosts, result);
  take_medians(&HostSpec::collectives, {&CollectivePoint::seconds}, hosts, result);
  return result;
}

}  // namespace echelon
