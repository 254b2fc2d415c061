// Random callbacks with a sense for what hurts: parents of the right and of the wrong kind, handles that are stale,
// forged or from another table, contexts that are finalized or foreign, types and states of no version. Seeded.
#ifndef COMMINSIGHT_NCCL_FUZZ_H
#define COMMINSIGHT_NCCL_FUZZ_H
#include <unistd.h>

#include "check.h"
#include "nccl_play.h"

namespace fuzz {

using namespace ci::nccl;

struct Random {
  uint64_t state;
  uint64_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  }
  uint64_t below(uint64_t n) { return (next() >> 11) % n; }
  bool chance(uint64_t percent) { return below(100) < percent; }
  template <class T, size_t N>
  T of(const T (&items)[N]) {
    return items[below(N)];
  }
};

// Handles that any thread was given, by event type; the last ones of each.
class Handles {
 public:
  static constexpr int kTypes = 16;
  static constexpr int kKept = 32;
  void keep(int type, void* handle) { ci::store_relaxed(kept_[type][ci::add(next_[type], 1u) % kKept], bits(handle)); }
  void* any(Random& random, int type) const {
    return reinterpret_cast<void*>(ci::load_relaxed(kept_[type][random.below(kKept)]));
  }
  static uint64_t bits(void* handle) { return reinterpret_cast<uint64_t>(handle); }

 private:
  uint64_t kept_[kTypes][kKept];
  uint32_t next_[kTypes];
};

// What threads share: contexts of any version (`old` is finalized), and the masks that NCCL would read.
struct Shared {
  static constexpr int kContexts = 6;
  Handles handles;
  uint64_t contexts[kContexts];
  uint64_t old;
  int32_t masks[kContexts];
  uint64_t n_callbacks;
  uint64_t n_inits;
};

inline int index_of(uint64_t type) { return __builtin_ctzll(type | 1u << 15); }

constexpr const char* kFuncs[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AlltoAll",
                                  "Gather",    "Send",      "Recv",          "SendRecv",  "",       nullptr};
constexpr const char* kTypesOfData[] = {"ncclFloat32", "ncclBfloat16", "ncclInt8", "Unknown", "", nullptr};
constexpr const char* kAlgos[] = {"RING", "TREE", "NVLS", "PAT", "AllReduce_RSxLD_AGxST", "", nullptr};
constexpr const char* kProtos[] = {"LL", "LL128", "SIMPLE", "", nullptr};
constexpr uint8_t kChannels[] = {0, 1, 1, 2, 2, 4, 8, 64, 65, 255};
constexpr uint64_t kCounts[] = {0, 1, 1000, 1ull << 40, ~0ull, 1ull << 63};
constexpr int32_t kStates[] = {8,  9,  10, 11, 12, 13, 14, 18, 19, 20, 20, 20, 21, 22, 22, 22,
                               23, 24, 24, 25, 26, 27, 28, 30, 31, 32, 99, -1, 0,  7,  INT32_MAX, INT32_MIN};
constexpr uint64_t kFanCalls = 60;
// Weighted: calls, tasks and channels often, the rest sometimes.
constexpr uint64_t kStarts[] = {
    kGroupApi, kGroupApi,  kCollApi,   kCollApi,    kCollApi,   kP2pApi,   kP2pApi,   kP2pApi, kKernelLaunch, kGroup,
    kColl,     kColl,      kColl,      kP2p,        kP2p,       kP2p,      kKernelCh, kKernelCh, kKernelCh, kKernelCh,
    kProxyOp,  kProxyOp,   kProxyStep, kProxyStep,  kProxyCtrl, kNetPlugin, kCeColl,  kCeSync, kCeBatch,      kKernelPhase,
    0,         1ull << 16, 1ull << 20, 1ull << 63,  kColl | kP2p, ~0ull};

template <int kVersion>
class Player {
 public:
  using D = typename play::Abi<kVersion>::Descriptor;
  Player(Shared& shared, Random& random) : table_(play::Abi<kVersion>::ours()), shared_(shared), random_(random) {}

  // Around the callback alone: the harness itself may read clocks or allocate.
  template <class Watch>
  void one(Watch& watch) {
    const uint64_t dice = random_.below(100);
    if (kVersion >= 5 && random_.below(2000) == 0) return fan(watch);
    if (dice < 45) start(watch);
    else if (dice < 70) stop(watch);
    else record(watch);
    ci::add(shared_.n_callbacks, 1u);
  }

  void renew_context() {
    const auto i = random_.below(Shared::kContexts);
    void* before = reinterpret_cast<void*>(ci::exchange(shared_.contexts[i], 0));
    if (before != nullptr) CHECK_EQ(table_.finalize(before), 0);
    if (random_.chance(20)) CHECK_EQ(table_.finalize(before), 0);  // and again
    ci::store_relaxed(shared_.old, reinterpret_cast<uint64_t>(before));
    static char long_name[4096];
    const char* names[] = {"dp", nullptr, "", "\xFF\xFEx", long_name};
    memset(long_name, 'n', sizeof long_name - 1);
    void* context = play::init<kVersion>(table_, 77 + i % 3, &shared_.masks[i], random_.of(names), 8,
                                         static_cast<int32_t>(random_.below(8)));
    ci::add(shared_.n_inits, 1u);
    const uint64_t other = ci::exchange(shared_.contexts[i], reinterpret_cast<uint64_t>(context));
    if (other != 0) CHECK_EQ(table_.finalize(reinterpret_cast<void*>(other)), 0);  // of a thread that did the same
  }

 private:
  void* context() {
    if (random_.chance(3)) return reinterpret_cast<void*>(random_.next());
    if (random_.chance(3)) return reinterpret_cast<void*>(ci::load_relaxed(shared_.old));
    return reinterpret_cast<void*>(ci::load_acquire(shared_.contexts[random_.below(Shared::kContexts)]));
  }
  // A handle where one of `type` belongs.
  void* handle(int type) {
    const uint64_t dice = random_.below(100);
    if (dice < 80) return shared_.handles.any(random_, type);
    if (dice < 90) return shared_.handles.any(random_, static_cast<int>(random_.below(Handles::kTypes)));
    if (dice < 93) return nullptr;
    if (dice < 95) return reinterpret_cast<void*>(random_.next());
    // A bit of it wrong: another slot, generation, type or salt.
    return reinterpret_cast<void*>(Handles::bits(shared_.handles.any(random_, type)) ^ 1ull << random_.below(64));
  }

  template <class Watch>
  void start(Watch& watch) {
    D d;
    auto* bytes = reinterpret_cast<uint8_t*>(&d);
    for (size_t i = 0; i < sizeof d; i++) bytes[i] = static_cast<uint8_t>(random_.next() >> 32);
    const uint64_t type = random_.of(kStarts);
    d.type = static_cast<decltype(d.type)>(type);
    d.parent = nullptr;
    fill(d, type);
    void* const unwritten = reinterpret_cast<void*>(0x5A5A5A5A5A5A5A5A);
    void* given = unwritten;
    const bool has_place = !random_.chance(1);
    const bool has_descriptor = !random_.chance(1);
    void* const in = context();
    watch.enter();
    const Result result = table_.start_event(in, has_place ? &given : nullptr, has_descriptor ? &d : nullptr);
    watch.leave();
    CHECK_EQ(result, 0);
    if (!has_place) return;
    CHECK(given != unwritten);
    shared_.handles.keep(index_of(type), given);
  }

  // A group of many P2P calls, nearly as NCCL plays it: random callbacks alone never fill one.
  template <class Watch>
  void fan(Watch& watch) {
    if constexpr (kVersion >= 5) {
      void* const in = context();
      void* const group = given(watch, in, kGroupApi, nullptr);
      void* calls[kFanCalls];
      const uint64_t n = 1 + random_.below(kFanCalls);
      for (uint64_t i = 0; i < n; i++) calls[i] = given(watch, random_.chance(95) ? in : context(), kP2pApi, group);
      if (random_.chance(95)) told(watch, group, kGroupEndApiStart);
      const bool leaves_early = random_.chance(10);
      if (leaves_early) stopped(watch, group);
      for (uint64_t i = 0; i < n; i++) {
        if (random_.chance(10)) continue;  // the pair with oneself has no task
        void* const task = given(watch, in, kP2p, random_.chance(97) ? calls[i] : handle(index_of(kP2pApi)));
        void* const channel = given(watch, in, kKernelCh, task);
        if (random_.chance(95)) stopped(watch, task);
        if (random_.chance(95)) told(watch, channel, kKernelChStop);
        if (random_.chance(95)) stopped(watch, channel);
      }
      if (!leaves_early && random_.chance(95)) stopped(watch, group);
      ci::add(shared_.n_callbacks, 6 * n);
    }
  }
  template <class Watch>
  void* given(Watch& watch, void* in, uint64_t type, void* parent) {
    D d;
    memset(static_cast<void*>(&d), 0, sizeof d);
    fill(d, type);
    d.type = static_cast<decltype(d.type)>(type);
    d.parent = parent;
    if (type == kP2p) d.p2p.n_channels = 1;
    const char* direction = random_.chance(50) ? "Send" : "Recv";
    if (type == kP2p) d.p2p.func = direction;
    if (type == kP2pApi) func_of_call(d) = direction;
    void* handle = nullptr;
    watch.enter();
    table_.start_event(in, &handle, &d);
    watch.leave();
    shared_.handles.keep(index_of(type), handle);
    return handle;
  }
  static const char*& func_of_call(D& d) {
    if constexpr (kVersion >= 5) return d.p2p_api.func;
    else return d.p2p.func;
  }
  template <class Watch>
  void stopped(Watch& watch, void* of) {
    watch.enter();
    table_.stop_event(of);
    watch.leave();
  }
  template <class Watch>
  void told(Watch& watch, void* of, int32_t state) {
    StateArgs args;
    args.gpu_ns = stamp();
    watch.enter();
    table_.record_state(of, state, &args);
    watch.leave();
  }

  template <class Watch>
  void stop(Watch& watch) {
    void* const of = handle(index_of(random_.of(kStarts)));
    watch.enter();
    const Result result = table_.stop_event(of);
    watch.leave();
    CHECK_EQ(result, 0);
  }

  template <class Watch>
  void record(Watch& watch) {
    StateArgs args;
    args.gpu_ns = stamp();
    const int32_t state = random_.of(kStates);
    int type = index_of(random_.of(kStarts));
    if (state == kKernelChStop && random_.chance(90)) type = index_of(kKernelCh);
    if (state >= kSendGpuWait && state <= kRecvGpuWait && random_.chance(90)) type = index_of(kProxyStep);
    if (state == kGroupEndApiStart && random_.chance(90)) type = index_of(kGroupApi);
    void* const of = handle(type);
    StateArgs* const told = random_.chance(10) ? nullptr : &args;
    watch.enter();
    const Result result = table_.record_state(of, state, told);
    watch.leave();
    CHECK_EQ(result, 0);
  }

  uint64_t stamp() {
    if (random_.chance(90)) return play::gpu_now();
    const uint64_t odd[] = {0, 1, ~0ull, 1ull << 63, random_.next()};
    return random_.of(odd);
  }

  // Strings must be strings; bools hold 0 or 1; all else may be anything.
  void fill(D& d, uint64_t type) {
    switch (type & (kVersion == 4 ? 255 : ~0ull)) {
      case kColl: return fill_coll(d);
      case kP2p: return fill_p2p(d);
      case kKernelCh:
        d.parent = handle(index_of(random_.chance(60) ? kColl : kP2p));
        d.kernel_ch = {static_cast<uint8_t>(random_.below(random_.chance(90) ? 4 : 256)), stamp()};
        return;
      case kProxyOp:
        d.parent = handle(index_of(random_.chance(60) ? kColl : kP2p));
        if (random_.chance(80)) d.proxy_op.pid = getpid();
        return;
      case kProxyStep: d.parent = handle(index_of(kProxyOp)); return;
      case kNetPlugin: d.parent = handle(index_of(kProxyStep)); return;
    }
    if constexpr (kVersion >= 5) fill_api(d, type);
  }
  void fill_coll(D& d) {
    d.parent = handle(index_of(kVersion >= 5 ? kCollApi : kGroup));
    d.coll.func = random_.of(kFuncs);
    d.coll.datatype = random_.of(kTypesOfData);
    d.coll.algo = random_.of(kAlgos);
    d.coll.proto = random_.of(kProtos);
    d.coll.n_channels = random_.of(kChannels);
    if constexpr (kVersion >= 5) d.coll.parent_group = handle(index_of(kGroup));
    if constexpr (kVersion >= 7) d.coll.kernel_variant = random_.of(kAlgos), d.coll.is_symmetric = random_.chance(10);
  }
  void fill_p2p(D& d) {
    d.parent = handle(index_of(kVersion >= 5 ? kP2pApi : kGroup));
    d.p2p.func = random_.of(kFuncs);
    d.p2p.datatype = random_.of(kTypesOfData);
    d.p2p.peer = random_.chance(90) ? static_cast<int32_t>(random_.below(8)) : static_cast<int32_t>(random_.next());
    d.p2p.n_channels = random_.of(kChannels);
    if constexpr (kVersion >= 5) d.p2p.parent_group = handle(index_of(kGroup));
  }
  void fill_api(D& d, uint64_t type) {
    if (type == kGroupApi) d.group_api = {random_.chance(5), static_cast<int32_t>(random_.next())};
    if (type == kCollApi) fill_call(d, &d.coll_api);
    if (type == kP2pApi) fill_call(d, &d.p2p_api);
    if (type == kKernelLaunch) d.parent = handle(index_of(kGroupApi));
    if constexpr (kVersion >= 6) fill_copies(d, type);
    if constexpr (kVersion >= 7) {
      if (type != kKernelPhase) return;
      d.parent = handle(index_of(kKernelCh));
      d.kernel_phase.phase_name = random_.of(kFuncs);
    }
  }
  template <class Part>
  void fill_call(D& d, Part* part) {
    d.parent = handle(index_of(kGroupApi));
    part->func = random_.of(kFuncs);
    part->count = random_.of(kCounts);
    part->datatype = random_.of(kTypesOfData);
    part->is_captured = random_.chance(4);
  }
  void fill_copies(D& d, uint64_t type) {
    if (type == kCeSync) d.ce_sync.is_complete = random_.chance(50);
    if (type == kCeBatch) d.ce_batch.uses_intra_sync = random_.chance(50);
    if (type == kCeSync || type == kCeBatch) d.parent = handle(index_of(kCeColl));
    if (type != kCeColl) return;
    d.parent = handle(index_of(kCollApi));
    d.ce_coll.func = random_.of(kFuncs);
    d.ce_coll.datatype = random_.of(kTypesOfData);
    d.ce_coll.sync_strategy = random_.of(kProtos);
    d.ce_coll.is_intra_batch = random_.chance(50);
  }

  const typename play::Abi<kVersion>::Table& table_;
  Shared& shared_;
  Random& random_;
};

// One random callback of a random version; now and then a communicator is finalized and another one made.
class Players {
 public:
  Players(Shared& shared, uint64_t seed) : random_{seed | 1}, v4_(shared, random_), v5_(shared, random_),
                                           v6_(shared, random_), v7_(shared, random_) {}
  template <class Watch>
  void one(Watch& watch) {
    with_any([&](auto& player) { player.one(watch); });
  }
  void renew_context() {
    with_any([](auto& player) { player.renew_context(); });
  }

 private:
  template <class F>
  void with_any(F f) {
    const uint64_t dice = random_.below(100);
    if (dice < 15) f(v4_);
    else if (dice < 30) f(v5_);
    else if (dice < 45) f(v6_);
    else f(v7_);
  }

  Random random_;
  Player<4> v4_;
  Player<5> v5_;
  Player<6> v6_;
  Player<7> v7_;
};

}  // namespace fuzz
#endif
