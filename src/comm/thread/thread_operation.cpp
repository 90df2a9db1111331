#include "comm/thread/thread_operation.h"

#include <sched.h>
#include <exception>
#include <optional>

namespace echelon {
namespace {

Exchange& joined(ThreadMesh& mesh, Rendezvous& rendezvous, int party, const Signature& signature,
                 const PartyBuffers& buffers) {
  mesh.check_aborted();
  try {
    return rendezvous.join(party, signature, buffers, mesh.transport());
  } catch (const Failure&) {  // a mismatch: all were aborted
    mesh.wait_until_unused();
    throw;
  }
}

// A few microseconds, in which a peer on another core is likely to arrive. Only where every rank has a core.
constexpr int num_spins = 2000;
constexpr int first_spins = 64;  // after which it counts as waiting

void relax(int spin) {
  if (spin % 64 == 63) sched_yield();  // the peer may be scheduled on the same core
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadOperation::ThreadOperation(ThreadMesh& mesh, const Membership& membership, const Signature& signature,
                                 const PartyBuffers& buffers)
    : mesh_(mesh),
      rendezvous_(membership.rendezvous),
      party_(membership.party),
      sent_(membership.sent),
      exchange_(joined(mesh, membership.rendezvous, membership.party, signature, buffers)) {
  mesh_.add(*this);
}

ThreadOperation::~ThreadOperation() {
  mesh_.remove(*this);
  if (has_left_) return;
  const bool unwinds = std::uncaught_exceptions() > 0;
  if (unwinds && is_done()) {
    leave();
    return;
  }
  // A missing wait is found even if it happens to be done.
  const std::string_view what = unwinds ? "failed during" : "dropped, without waiting for it, its";
  mesh_.world().abort(fmt::format("rank {} {} {}", mesh_.rank(), what, to_string(exchange_.signature())));
  exchange_.wait_until_unused();
}

void ThreadOperation::wait() {
  Permits& permits = mesh_.world().permits();
  Lending& lending = mesh_.world().lending();
  std::optional<Deadline> deadline;  // once it sleeps
  Lending::Waiter waiter(lending);
  const int spins = permits.is_scarce() ? 0 : num_spins;
  int spin = 0;
  for (;;) {
    const std::uint32_t seen = exchange_.word().load(order::see_word);
    if ((seen & done_bit) != 0) return take_results();
    mesh_.check_aborted();
    if (advance()) continue;
    if (!permits.has_waiters() && lending.help()) {
      waiter.stay_awake();
      spin = 0;
    } else if (spin++ < spins) {
      if (spin == first_spins) waiter.stay_awake();
      relax(spin);
    } else {
      waiter.sleep();
      sleep(seen, deadline ? *deadline : deadline.emplace(mesh_.world().deadline()));
      spin = 0;
    }
  }
}

bool ThreadOperation::poll() {
  const bool worked = advance();
  if (is_done() && exchange_.is_device_done()) {
    take_results();
    return true;
  }
  mesh_.check_aborted();
  if (!worked) mesh_.rest();
  return false;
}

bool ThreadOperation::advance() {
  return (exchange_.word().load(order::see_word) & ready_bit) != 0 && exchange_.work();
}

void ThreadOperation::take_results() {
  exchange_.await_device(mesh_.transport());
  leave();
}

void ThreadOperation::leave() {
  has_left_ = true;
  sent_ += exchange_.sent_bytes(party_);
  rendezvous_.leave(party_, exchange_);
}

void ThreadOperation::sleep(std::uint32_t seen, Deadline deadline) {
  if (mesh_.world().permits().sleep(mesh_.rank(), exchange_.sleepers(), exchange_.word(), seen, deadline)) return;
  std::string late = rendezvous_.describe_timeout(party_, exchange_, mesh_.world().timeout_seconds());
  if (const std::string place = mesh_.place_in_model(); !place.empty())
    late += fmt::format("; rank {} is in {}", mesh_.rank(), place);
  mesh_.world().abort_after_timeout(late);
  mesh_.wait_until_unused();
  throw Failure(late);
}

}  // namespace echelon
