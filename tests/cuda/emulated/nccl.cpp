#include "nccl.h"

#include "comm/sum.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

using echelon::DType;

struct Collective {
  enum class Kind : std::uint8_t { all_reduce, all_gather, reduce_scatter, broadcast };
  struct Description {
    Kind kind = Kind::all_reduce;
    std::size_t count = 0;  // of the input of all_gather, of the output of reduce_scatter
    ncclDataType_t type = ncclFloat32;
    ncclRedOp_t op = ncclSum;
    int root = 0;
    std::int64_t offset = -1;  // in a symmetric window, of what peers write or read
    bool operator==(const Description&) const = default;
  };
  Description description;
  std::vector<const std::byte*> in;
  std::vector<std::byte*> out;
  std::vector<int> devices;  // of the ranks that have come
  std::size_t num_at_head = 0;
  bool is_done = false;
};

/// One message. A side is at the head when its stream has come to it.
struct Transfer {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t sent_bytes = 0, received_bytes = 0;
  bool has_source = false, has_target = false;
  bool is_source_at_head = false, is_target_at_head = false, is_done = false;
};

/// The ranks of a communicator. All of it is looked at under emulated::lock().
struct World {
  int size = 0;
  int num_joined = 0;
  int num_connected = 0;  // by a first collective, for which the hosts wait for each other
  // A rank has gone, and its memory may have: what is not done by now never is, and touches nothing.
  bool is_broken = false;
  int num_finalized = 0;
  std::deque<Collective> collectives;
  std::map<std::pair<int, int>, std::deque<Transfer>> transfers;  // by source and destination
  /// What ranks asked for: place in the child's order, by color.
  struct Split {
    int num_called = 0;
    std::map<int, std::map<std::pair<int, int>, int>> members;  // by color: (key, rank) -> rank
    std::map<int, std::shared_ptr<World>> worlds;               // by color
  };
  std::deque<Split> splits;
  /// A window that ranks register.
  struct Registration {
    std::size_t num_bytes = 0;
    std::ptrdiff_t offset = 0;  // in what was allocated
    int num_called = 0;
    bool is_wrong = false;
  };
  std::deque<Registration> registrations;
};

/// What ncclMemAlloc gave, and how often it is registered.
struct Allocation {
  std::size_t num_bytes = 0;
  int num_registered = 0;
};
std::map<const std::byte*, Allocation>& allocations() {
  static std::map<const std::byte*, Allocation> all;
  return all;
}
/// That with all of these bytes; null if there is none.
std::pair<const std::byte* const, Allocation>* allocation_of(const void* buffer, std::size_t num_bytes) {
  const auto* const first = static_cast<const std::byte*>(buffer);
  auto after = allocations().upper_bound(first);
  if (after == allocations().begin()) return nullptr;
  --after;
  return first + num_bytes <= after->first + after->second.num_bytes ? &*after : nullptr;
}

/// A rank's communicators that share what is connected, with the rank's operations on the device in their order.
struct Family {
  std::set<int> neighbours;            // ranks of the first communicator
  std::shared_ptr<bool> is_last_done;  // of what was started last
  int num_members = 0;
  const void* owner = nullptr;
};

/// This rank's side of a message.
struct Side {
  Transfer* transfer = nullptr;
  bool is_source = false;
  bool is_first = false;  // between the two: they connect
};

/// A call of ncclSend or ncclRecv.
struct Message {
  int source = 0, destination = 0;
  const std::byte* in = nullptr;  // of the source's side
  std::byte* out = nullptr;       // of the destination's
  std::size_t num_bytes = 0;
  bool is_source = false;
};

struct Batch {
  cudaStream_t stream = nullptr;
  std::vector<Message> messages;
};

struct Meeting {
  std::map<std::int64_t, std::shared_ptr<World>> worlds;  // that not all ranks have joined
  std::int64_t num_ids = 0;
};
Meeting& meeting() {
  static Meeting the_meeting;
  return the_meeting;
}
std::atomic<ncclResult_t> wanted_error = ncclSuccess;
std::atomic<int> num_alive = 0;
std::atomic<int> num_launches = 0;
std::atomic<int> num_split = 0, num_split_sharing = 0;
std::atomic<int> num_registered_windows = 0, num_in_windows = 0;
std::atomic<ncclResult_t> memory_error = ncclSuccess;

DType dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32: return DType::float32;
    case ncclFloat64: return DType::float64;
    case ncclBfloat16: return DType::bfloat16;
    case ncclFloat16: return DType::float16;
    case ncclInt32: return DType::int32;
    case ncclInt8:
    case ncclUint8: break;
  }
  throw std::runtime_error("no sums of bytes");
}
std::size_t size_of(ncclDataType_t type) {
  return type == ncclInt8 || type == ncclUint8 ? 1 : static_cast<std::size_t>(echelon::size_of(dtype_of(type)));
}

void perform(Collective& x) {
  const Collective::Description& what = x.description;
  const std::size_t n = x.in.size();
  const auto num_bytes = static_cast<std::int64_t>(what.count * size_of(what.type));
  const auto summation = [&] {
    return echelon::Summation{.dtype = dtype_of(what.type),
                              .op = what.op == ncclMax ? echelon::ReduceOp::max : echelon::ReduceOp::sum};
  };
  switch (what.kind) {
    case Collective::Kind::all_reduce:
      return echelon::reduce_in_rank_order(summation(), x.in, x.out, {0, 0, num_bytes});
    case Collective::Kind::reduce_scatter:
      for (std::size_t i = 0; i < n; ++i)
        echelon::reduce_in_rank_order(summation(), x.in, {&x.out[i], 1},
                                      {static_cast<std::int64_t>(i) * num_bytes, 0, num_bytes});
      return;
    case Collective::Kind::all_gather:
      for (std::size_t i = 0; i < n; ++i)
        for (std::byte* const out : x.out)
          std::memmove(out + static_cast<std::int64_t>(i) * num_bytes, x.in[i], static_cast<std::size_t>(num_bytes));
      return;
    case Collective::Kind::broadcast:
      for (std::byte* const out : x.out)
        std::memmove(out, x.in[static_cast<std::size_t>(what.root)], static_cast<std::size_t>(num_bytes));
      return;
  }
}

thread_local int group_depth = 0;
thread_local std::vector<std::pair<ncclComm_t, Batch>> grouped;
/// The collectives of a group, of which those of a communicator are one launch.
thread_local std::vector<std::pair<ncclComm_t, std::function<ncclResult_t()>>> grouped_collectives;
thread_local std::vector<ncclComm_t> ending;  // for which the end of the group waits

[[noreturn]] void hang(const char* reason) {
  std::fprintf(stderr, "emulated NCCL: %s\n", reason);
  std::abort();
}

}  // namespace

struct ncclWindow_vidmem {
  const std::byte* base = nullptr;
  std::size_t num_bytes = 0;
  Allocation* allocation = nullptr;
  bool is_symmetric = false;
};

struct ncclComm {
  std::shared_ptr<World> world;
  int rank = 0;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  std::vector<int> family_ranks = {};  // by rank: that of the family's first communicator
  std::shared_ptr<Family> family = std::make_shared<Family>();
  std::size_t num_collectives = 0;
  std::map<std::pair<int, int>, std::size_t> num_transfers;
  std::shared_ptr<bool> is_aborted = std::make_shared<bool>(false);
  /// TensorPlacement by this rank's operations on streams, and by those in captures and graphs.
  std::shared_ptr<char> on_streams = std::make_shared<char>(), in_graphs = std::make_shared<char>();

  /// What was started last, until a thread of NCCL's would have brought it to its stream.
  struct Launch {
    std::function<bool()> are_connected;
    std::function<cudaError_t()> enqueue;
  };
  std::deque<Launch> launches;
  ncclResult_t failure = ncclSuccess;
  bool is_finalized = false;
  /// A split that not all ranks have called.
  struct Splitting {
    World::Split* split = nullptr;
    ncclConfig_t config;
    int color = NCCL_SPLIT_NOCOLOR;
    ncclComm** child = nullptr;
  };
  std::optional<Splitting> splitting = {};
  std::size_t num_splits = 0;
  /// A window that not all ranks have registered.
  struct Registering {
    World::Registration* registration = nullptr;
    ncclWindow_vidmem window;
    ncclWindow_t* result = nullptr;
  };
  std::optional<Registering> registering = {};
  std::size_t num_registrations = 0;
  std::set<ncclWindow_t> windows = {};  // and buffers

  ncclResult_t state() {
    if (wanted_error != ncclSuccess) return wanted_error;
    if (failure != ncclSuccess) return failure;
    if (world->num_joined < world->size) return ncclInProgress;
    if (splitting && splitting->split->num_called < world->size) return ncclInProgress;
    if (splitting) end_split(*std::exchange(splitting, std::nullopt));
    if (registering && registering->registration->num_called < world->size) return ncclInProgress;
    if (registering) end_registration(*std::exchange(registering, std::nullopt));
    if (failure != ncclSuccess) return failure;
    if (is_finalized && (world->num_finalized < world->size || on_streams.use_count() > 1)) return ncclInProgress;
    while (!launches.empty()) {
      if (emulated::draw(2) == 0 || !launches.front().are_connected()) return ncclInProgress;
      if (launches.front().enqueue() != cudaSuccess) failure = ncclUnhandledCudaError;
      launches.pop_front();
    }
    return failure;
  }
  /// What was called last is in progress.
  [[nodiscard]] bool is_busy() const { return !launches.empty() || splitting || registering; }
  void end_registration(const Registering& asked) {
    if (asked.registration->is_wrong) {
      failure = ncclInvalidArgument;
      return;
    }
    *asked.result = add_window(asked.window);
  }
  ncclWindow_t add_window(const ncclWindow_vidmem& window) {
    ++window.allocation->num_registered;
    if (window.is_symmetric) ++num_registered_windows;
    return *windows.insert(new ncclWindow_vidmem(window)).first;
  }
  ncclResult_t remove_window(ncclWindow_t window) {
    if (windows.erase(window) == 0) return ncclInvalidArgument;
    --window->allocation->num_registered;
    if (window->is_symmetric) --num_registered_windows;
    delete window;
    return ncclSuccess;
  }
  /// In a symmetric window; -1: in none.
  [[nodiscard]] std::int64_t offset_of(const void* buffer) const {
    const auto* const first = static_cast<const std::byte*>(buffer);
    for (const ncclWindow_vidmem* window : windows)
      if (window->is_symmetric && window->base <= first && first < window->base + window->num_bytes)
        return first - window->base;
    return -1;
  }
  void end_split(const Splitting& asked);
  /// What a new communicator takes of the device.
  [[nodiscard]] std::int64_t connect_neighbours() {
    const int n = world->size;
    const auto most_of = [](const ncclConfig_t& of) {
      return std::min<std::int64_t>(of.maxCTAs == NCCL_CONFIG_UNDEF_INT ? emulated::most_blocks : of.maxCTAs,
                                    emulated::most_blocks);
    };
    const auto* const owner = static_cast<const ncclComm*>(family->owner);
    const std::int64_t num_blocks = std::min(most_of(config), most_of(owner == nullptr ? config : owner->config));
    const std::set<int> around = {(rank + 1) % n, (rank + n - 1) % n};
    int num_new = 0;
    for (const int neighbour : around)
      if (family->neighbours.insert(family_ranks[static_cast<std::size_t>(neighbour)]).second) ++num_new;
    return num_blocks * emulated::bytes_of_a_block * num_new / static_cast<int>(around.size());
  }
  ncclResult_t launch(Launch launch) {
    launches.push_back(std::move(launch));
    return ncclInProgress;
  }
  /// Nothing of this rank is touched any more. Its peers' operations wait for what does not come.
  void leave() {
    *is_aborted = true;
    world->is_broken = true;
  }
  /// The communicator ends when this rank's streams have done what they have of it, and no graph has any.
  void await_end() const {
    if (in_graphs.use_count() > 1)
      hang("a communicator would never end, since a graph, or a capture, holds operations of it");
    if (!emulated::wait_until([this] { return on_streams.use_count() == 1; }))
      hang("a communicator would never end, since operations of it stand behind others that do not end");
  }

  // What is captured begins anew at each launch of its graph; the ranks are connected by then.
  ncclResult_t start(const Collective::Description& description, const void* in, void* out, cudaStream_t stream) {
    const auto lock = emulated::lock();
    if (group_depth > 0) {
      grouped_collectives.push_back({this, [=, this] { return start_now(description, in, out, stream); }});
      return ncclSuccess;
    }
    ++num_launches;
    return is_busy() ? ncclInvalidArgument : start_now(description, in, out, stream);
  }

  ncclResult_t start_now(const Collective::Description& description, const void* in, void* out, cudaStream_t stream) {
    if (emulated::is_captured(stream))
      return num_collectives == 0 ? ncclInvalidUsage
                                  : launch({.are_connected = [] { return true; },
                                            .enqueue =
                                                [=, this] {
                                                  return emulated::enqueue_when(stream, [=, this, held = in_graphs] {
                                                    return begin(description, in, out, stream);
                                                  });
                                                }});
    if (num_collectives == 0) ++world->num_connected;
    try {
      return launch(
          {.are_connected = [keep = world] { return keep->num_connected == keep->size; },
           .enqueue = [stream, due = begin(description, in, out,
                                           stream)] { return emulated::enqueue_when(stream, [due] { return due; }); }});
    } catch (const std::invalid_argument&) {
      return ncclInvalidArgument;
    }
  }

  emulated::DueWork begin(Collective::Description description, const void* in, void* out, cudaStream_t stream) {
    description.offset = offset_of(description.kind == Collective::Kind::reduce_scatter ? in : out);
    if (description.offset >= 0) ++num_in_windows;
    const auto own = static_cast<std::size_t>(rank), n = static_cast<std::size_t>(world->size);
    if (num_collectives == world->collectives.size()) {
      world->collectives.emplace_back();
      world->collectives.back().description = description;
      world->collectives.back().in.resize(n);
      world->collectives.back().out.resize(n);
    }
    Collective& x = world->collectives[num_collectives++];
    // Where the chip would hang.
    if (x.description != description) throw std::invalid_argument("ranks start different collectives");
    x.in[own] = static_cast<const std::byte*>(in);
    x.out[own] = static_cast<std::byte*>(out);
    x.devices.push_back(emulated::device_of(stream));
    const auto [is_previous_done, is_own_done] = take_turn();
    const auto is_due = [&x, n, has_come = std::make_shared<bool>(false), aborted = is_aborted, keep = world,
                         is_previous_done = is_previous_done] {
      if (*aborted) return true;
      if (!*is_previous_done) return false;
      if (x.is_done) return true;
      if (keep->is_broken) return false;
      if (!std::exchange(*has_come, true)) ++x.num_at_head;
      return x.num_at_head == n && std::none_of(x.devices.begin(), x.devices.end(), emulated::is_context_locked);
    };
    const auto work = [&x, aborted = is_aborted, keep = world, held = on_streams, is_own_done = is_own_done] {
      *is_own_done = true;
      if (!*aborted && !std::exchange(x.is_done, true)) perform(x);
    };
    return {is_due, work};
  }

  ncclResult_t start(const Batch& batch) {
    if (emulated::is_captured(batch.stream))
      return launch({.are_connected = [] { return true; },
                     .enqueue =
                         [=, this] {
                           return emulated::enqueue_when(
                               batch.stream, [=, this, held = in_graphs] { return begin(sides_of(batch.messages)); });
                         }});
    const std::vector<Side> sides = sides_of(batch.messages);
    const auto are_connected = [sides, keep = world] {
      return std::all_of(sides.begin(), sides.end(), [](const Side& side) {
        return !side.is_first || (side.transfer->has_source && side.transfer->has_target);
      });
    };
    return launch({.are_connected = are_connected, .enqueue = [stream = batch.stream, due = begin(sides)] {
                     return emulated::enqueue_when(stream, [due] { return due; });
                   }});
  }

  /// Of the family's operations on this rank's device: whether the previous one is done, and this one.
  [[nodiscard]] std::pair<std::shared_ptr<bool>, std::shared_ptr<bool>> take_turn() const {
    auto own = std::make_shared<bool>(false);
    auto previous = std::exchange(family->is_last_done, own);
    return {previous ? std::move(previous) : std::make_shared<bool>(true), std::move(own)};
  }

  emulated::DueWork begin(const std::vector<Side>& all) const {
    const auto [is_previous_done, is_own_done] = take_turn();
    const auto is_due = [sides = all, aborted = is_aborted, keep = world, is_previous_done = is_previous_done] {
      if (*aborted) return true;
      if (!*is_previous_done) return false;
      bool are_all = true;
      for (const auto& [x, is_source, is_first] : sides) {
        (is_source ? x->is_source_at_head : x->is_target_at_head) = true;
        are_all = are_all && (x->is_done || (x->is_source_at_head && x->is_target_at_head && !keep->is_broken));
      }
      return are_all;
    };
    const auto work = [sides = all, aborted = is_aborted, keep = world, held = on_streams, is_own_done = is_own_done] {
      *is_own_done = true;
      for (const auto& [x, is_source, is_first] : sides) {
        if (x->is_done || *aborted) continue;
        if (x->sent_bytes != x->received_bytes)
          throw std::runtime_error("a message of another size than its receiver expects");
        std::memmove(x->out, x->in, x->sent_bytes);
        x->is_done = true;
      }
    };
    return {is_due, work};
  }

  std::vector<Side> sides_of(const std::vector<Message>& messages) {
    std::vector<Side> sides;
    for (const Message& message : messages) sides.push_back(side_of(message));
    return sides;
  }

  Side side_of(const Message& message) {
    auto& transfers = world->transfers[{message.source, message.destination}];
    // A rank that sends to itself is on both sides.
    std::size_t& number =
        num_transfers[{message.source, message.is_source ? message.destination : -1 - message.destination}];
    const bool is_first = number == 0;
    if (number == transfers.size()) transfers.emplace_back();
    Transfer& x = transfers[number++];
    if (message.is_source) {
      x.in = message.in;
      x.sent_bytes = message.num_bytes;
      x.has_source = true;
    } else {
      x.out = message.out;
      x.received_bytes = message.num_bytes;
      x.has_target = true;
    }
    return {&x, message.is_source, is_first};
  }

  ncclResult_t add(const Message& message, cudaStream_t stream) {
    const auto lock = emulated::lock();
    if (is_busy()) return ncclInvalidArgument;
    if (group_depth == 0) return start(Batch{stream, {message}});
    for (auto& [comm, batch] : grouped)
      if (comm == this && batch.stream == stream) {
        batch.messages.push_back(message);
        return ncclSuccess;
      }
    grouped.push_back({this, Batch{stream, {message}}});
    return ncclSuccess;
  }
};

namespace {

bool is_valid(const ncclConfig_t& config) {
  const auto is_one_of = [](int value, int least, int most) {
    return value == NCCL_CONFIG_UNDEF_INT || (least <= value && value <= most);
  };
  if (config.blocking != 0) return false;  // whose waits nothing ends
  return is_one_of(config.splitShare, 0, 1) && is_one_of(config.minCTAs, 1, emulated::most_blocks) &&
         is_one_of(config.maxCTAs, std::max(config.minCTAs, 1), emulated::most_blocks);
}

void free_communicator(ncclComm* comm) {
  comm->await_end();
  const auto lock = emulated::lock();
  if (comm->is_finalized && !*comm->is_aborted && !comm->windows.empty())
    hang("a communicator was destroyed before memory was deregistered");
  if (--comm->family->num_members > 0 && comm->family->owner == comm && comm->is_finalized)
    hang("a communicator was destroyed before those that were split from it and share its buffers");
  emulated::hold_memory(comm, 0);
  delete comm;
  --num_alive;
}

/// Threads of NCCL's that free communicators.
struct Reclaims {
  std::mutex mutex;
  std::vector<std::thread> threads;
  Reclaims() { (void)emulated::num_waiting(); }  // the machine, which they use, is made first and so outlives them
  ~Reclaims() {
    for (std::thread& thread : threads) thread.join();
  }
  Reclaims(const Reclaims&) = delete;
  Reclaims& operator=(const Reclaims&) = delete;
  void add(ncclComm* comm) {
    const std::scoped_lock lock(mutex);
    threads.emplace_back([comm] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      free_communicator(comm);
    });
  }
};

/// What the call returns that ends this thread's communicators.
ncclResult_t end_those_told_to() {
  static Reclaims reclaims;
  ncclResult_t result = ncclSuccess;
  for (ncclComm* const comm : std::exchange(ending, {})) {
    reclaims.add(comm);
    result = ncclInProgress;
  }
  return result;
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
  }
  return "?";
}
ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const auto lock = emulated::lock();
  *id = {};
  const std::int64_t number = ++meeting().num_ids;
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int num_ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const auto lock = emulated::lock();
  if (!is_valid(*config)) return ncclInvalidArgument;
  std::int64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  auto& world = meeting().worlds[number];
  if (!world) world = std::make_shared<World>();
  world->size = num_ranks;
  ++num_alive;
  *comm = new ncclComm{.world = world, .rank = rank, .config = *config, .num_transfers = {}, .launches = {}};
  for (int i = 0; i < num_ranks; ++i) (*comm)->family_ranks.push_back(i);
  (*comm)->family->num_members = 1;
  (*comm)->family->owner = *comm;
  emulated::hold_memory(*comm, (*comm)->connect_neighbours());
  if (++(*comm)->world->num_joined == num_ranks) meeting().worlds.erase(number);
  return ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t* config) {
  const auto lock = emulated::lock();
  if (comm->state() != ncclSuccess || comm->is_finalized || !is_valid(config == nullptr ? comm->config : *config) ||
      (color < 0 && color != NCCL_SPLIT_NOCOLOR))
    return ncclInvalidArgument;
  *child = nullptr;
  World& world = *comm->world;
  if (comm->num_splits == world.splits.size()) world.splits.emplace_back();
  World::Split& split = world.splits[comm->num_splits++];
  ++split.num_called;
  if (color != NCCL_SPLIT_NOCOLOR) split.members[color][{key, comm->rank}] = comm->rank;
  comm->splitting = {
      .split = &split, .config = config == nullptr ? comm->config : *config, .color = color, .child = child};
  return ncclInProgress;
}
void ncclComm::end_split(const Splitting& asked) {
  if (asked.color == NCCL_SPLIT_NOCOLOR) return;
  auto& made = asked.split->worlds[asked.color];
  if (!made) made = std::make_shared<World>();
  const auto& members = asked.split->members.at(asked.color);
  made->size = static_cast<int>(members.size());
  auto* const child =
      new ncclComm{.world = made, .config = asked.config, .family_ranks = {}, .num_transfers = {}, .launches = {}};
  const bool shares = config.splitShare == 1;
  for (const auto& [place, member] : members) {
    if (member == rank) child->rank = static_cast<int>(child->family_ranks.size());
    child->family_ranks.push_back(shares ? family_ranks[static_cast<std::size_t>(member)]
                                         : static_cast<int>(child->family_ranks.size()));
  }
  if (shares)
    child->family = family;
  else
    child->family->owner = child;
  ++child->family->num_members;
  ++made->num_joined;
  ++num_alive;
  ++num_split;
  if (shares) ++num_split_sharing;
  emulated::hold_memory(child, child->connect_neighbours());
  *asked.child = child;
}
ncclResult_t ncclMemAlloc(void** address, std::size_t num_bytes) {
  if (memory_error != ncclSuccess) return memory_error;
  constexpr std::size_t page = std::size_t{2} << 20;
  const std::size_t whole = (num_bytes + page - 1) / page * page;
  if (cudaMalloc(address, whole) != cudaSuccess) return ncclUnhandledCudaError;
  const auto lock = emulated::lock();
  allocations()[static_cast<const std::byte*>(*address)] = {.num_bytes = whole};
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* address) {
  {
    const auto lock = emulated::lock();
    const auto found = allocations().find(static_cast<const std::byte*>(address));
    if (found == allocations().end()) return ncclInvalidArgument;
    if (found->second.num_registered > 0) hang("memory is freed that a communicator has registered");
    allocations().erase(found);
  }
  return cudaFree(address) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buffer, std::size_t num_bytes, ncclWindow_t* window,
                                    int flags) {
  const auto lock = emulated::lock();
  const auto* const base = static_cast<const std::byte*>(buffer);
  auto* const allocation = allocation_of(buffer, num_bytes);
  if (comm->state() != ncclSuccess || allocation == nullptr ||
      (base - allocation->first) % NCCL_WIN_REQUIRED_ALIGNMENT != 0)
    return ncclInvalidArgument;
  *window = nullptr;
  World& world = *comm->world;
  if (comm->num_registrations == world.registrations.size()) world.registrations.emplace_back();
  World::Registration& registration = world.registrations[comm->num_registrations++];
  const std::ptrdiff_t offset = base - allocation->first;
  if (registration.num_called++ == 0) {
    registration.num_bytes = num_bytes;
    registration.offset = offset;
  }
  if (registration.num_bytes != num_bytes || registration.offset != offset) registration.is_wrong = true;
  comm->registering = {.registration = &registration,
                       .window = {.base = base,
                                  .num_bytes = num_bytes,
                                  .allocation = &allocation->second,
                                  .is_symmetric = flags == NCCL_WIN_COLL_SYMMETRIC},
                       .result = window};
  return ncclInProgress;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  const auto lock = emulated::lock();
  if (comm->is_busy()) return ncclInvalidArgument;
  return comm->remove_window(window);
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const auto lock = emulated::lock();
  if (comm->is_finalized || comm->is_busy()) return ncclInvalidArgument;
  comm->is_finalized = true;
  ++comm->world->num_finalized;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  if (ncclCommGetAsyncError(comm, &state); comm->is_finalized && state == ncclSuccess) {
    free_communicator(comm);
    return ncclSuccess;
  }
  ending.push_back(comm);
  return group_depth == 0 ? end_those_told_to() : ncclSuccess;
}
// Its operations are told to end here, also within a group.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const auto lock = emulated::lock();
    comm->leave();
    comm->launches.clear();
    for (ncclWindow_t const window : std::set(comm->windows)) comm->remove_window(window);
  }
  ending.push_back(comm);
  return group_depth == 0 ? end_those_told_to() : ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const auto lock = emulated::lock();
  *error = comm->state();
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  if (comm == nullptr) return ncclInvalidArgument;
  return comm->start({.kind = Collective::Kind::all_reduce, .count = count, .type = type, .op = op}, in, out, stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  if (comm == nullptr) return ncclInvalidArgument;
  return comm->start({.kind = Collective::Kind::all_gather, .count = count, .type = type}, in, out, stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  if (comm == nullptr) return ncclInvalidArgument;
  return comm->start({.kind = Collective::Kind::reduce_scatter, .count = count, .type = type, .op = op}, in, out,
                     stream);
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  if (comm == nullptr) return ncclInvalidArgument;
  return comm->start({.kind = Collective::Kind::broadcast, .count = count, .type = type, .root = root}, in, out,
                     stream);
}
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (comm == nullptr) return ncclInvalidArgument;
  return comm->add({.source = comm->rank,
                    .destination = peer,
                    .in = static_cast<const std::byte*>(in),
                    .num_bytes = count * size_of(type),
                    .is_source = true},
                   stream);
}
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (comm == nullptr) return ncclInvalidArgument;
  return comm->add({.source = peer,
                    .destination = comm->rank,
                    .out = static_cast<std::byte*>(out),
                    .num_bytes = count * size_of(type)},
                   stream);
}
ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  const ncclResult_t ended = end_those_told_to();
  if (grouped.empty() && grouped_collectives.empty()) return ended;
  const auto lock = emulated::lock();
  std::set<ncclComm_t> started;
  for (const auto& [comm, start] : std::exchange(grouped_collectives, {})) {
    if (started.insert(comm).second) {
      ++num_launches;
      if (comm->is_busy()) return ncclInvalidArgument;
    }
    if (const ncclResult_t result = start(); result != ncclInProgress) return result;
  }
  for (const auto& [comm, batch] : std::exchange(grouped, {})) (void)comm->start(batch);
  return ncclInProgress;
}

namespace emulated {

void set_nccl_error(ncclResult_t error) { wanted_error = error; }
int num_communicators() { return num_alive; }
int num_nccl_launches() { return num_launches; }
Splits num_splits() { return {num_split, num_split_sharing}; }
int num_windows() { return num_registered_windows; }
int num_collectives_in_windows() { return num_in_windows; }
void set_nccl_memory_error(ncclResult_t error) { memory_error = error; }

}  // namespace emulated
