#include "cuda/comm/placement.h"

#include "comm/gathered.h"
#include "cuda/comm/nvlink.h"
#include "cuda/device/device.h"

#include <unistd.h>
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace echelon::cuda {
namespace {

// FNV-1a.
std::int64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return std::bit_cast<std::int64_t>(hash);
}

// The running kernel and the machine's name: containers of one machine that have names of their own have GPUs of their
// own.
std::string host_identity() {
  std::string identity;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> identity;
  std::array<char, 256> name = {};
  if (gethostname(name.data(), name.size() - 1) == 0) identity += name.data();
  return identity;
}

std::string address_of_gpu(int index) {
  std::array<char, 64> name = {};
  check(cudaDeviceGetPCIBusId(name.data(), static_cast<int>(name.size()), index), "the GPU's address");
  return name.data();
}

}  // namespace

std::string identity_of_gpu(const std::string& address, const char* visible, int index) {
  std::istringstream entries(visible == nullptr ? "" : visible);
  std::string entry;
  for (int i = 0; i <= index; ++i)
    if (!std::getline(entries, entry, ',')) return address;
  entry.erase(0, entry.find_first_not_of(' '));
  return entry.starts_with("MIG-") ? address + " " + entry : address;
}

int choose_gpu(const std::vector<RankSite>& sites, int rank) {
  const RankSite& own = sites[static_cast<std::size_t>(rank)];
  int num_on_host = 0, num_in_process = 0, place_on_host = 0, place_in_process = 0;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (sites[i].host != own.host) continue;
    const bool is_before = static_cast<int>(i) < rank, is_same_process = sites[i].process == own.process;
    num_on_host += 1;
    place_on_host += is_before ? 1 : 0;
    num_in_process += is_same_process ? 1 : 0;
    place_in_process += is_before && is_same_process ? 1 : 0;
  }
  if (num_on_host <= own.num_gpus) return place_on_host;
  if (num_in_process <= own.num_gpus) return place_in_process;  // a launcher may have given each process its own
  return 0;
}

Placement place_on_gpu(Mesh& host) {
  const std::string identity = host_identity();
  const RankSite site = {.host = hash_of(identity), .process = getpid(), .num_gpus = num_devices()};
  const std::vector<RankSite> sites = gathered(host, site);
  Placement placement;
  placement.index =
      order_by_islands(site.num_gpus, are_linked_by_nvlink)[static_cast<std::size_t>(choose_gpu(sites, host.rank()))];
  placement.gpu =
      hash_of(identity + " " +
              identity_of_gpu(address_of_gpu(placement.index), std::getenv("CUDA_VISIBLE_DEVICES"), placement.index));
  const std::vector<std::int64_t> gpus = gathered(host, placement.gpu);
  placement.num_sharing = static_cast<int>(std::count(gpus.begin(), gpus.end(), placement.gpu));
  placement.has_each_its_own = std::all_of(
      gpus.begin(), gpus.end(), [&](std::int64_t gpu) { return std::count(gpus.begin(), gpus.end(), gpu) == 1; });
  return placement;
}

}  // namespace echelon::cuda
